package kube

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/source/object"
)

// problems are the current problems. Each is logged when it appears.
type problems struct {
	log *slog.Logger
	// objects has the problems of single objects, joined those of a Service together with
	// its slices, kinds those of reading a resource at all. No list is empty.
	objects, joined, kinds map[object.Key][]problem.Problem
	changed                bool
}

func newProblems(log *slog.Logger) problems {
	empty := func() map[object.Key][]problem.Problem { return map[object.Key][]problem.Problem{} }
	return problems{log: log, objects: empty(), joined: empty(), kinds: empty()}
}

// set replaces the problems of an object.
func (p *problems) set(k object.Key, faults []object.Fault) {
	var now []problem.Problem
	for _, f := range faults {
		now = append(now, problem.Problem{Object: k.String(), Field: f.Field, Message: f.Message})
	}
	p.put(p.objects, k, now)
}

func (p *problems) put(in map[object.Key][]problem.Problem, k object.Key, now []problem.Problem) {
	was := in[k]
	if slices.Equal(was, now) {
		return
	}
	p.changed = true
	for _, one := range now {
		if !slices.Contains(was, one) {
			p.log.Warn("object rejected", "object", one.Object, "field", one.Field, "error", one.Message)
		}
	}
	if in[k] = now; len(now) == 0 {
		delete(in, k)
	}
}

// forget removes the problems of deleted objects.
func (p *problems) forget(gone func(object.Key) bool) {
	for k := range p.objects {
		if gone(k) {
			p.put(p.objects, k, nil)
		}
	}
}

// all returns the problems, sorted.
func (p *problems) all() (all []problem.Problem) {
	for _, in := range []map[object.Key][]problem.Problem{p.kinds, p.objects, p.joined} {
		for _, k := range slices.SortedFunc(maps.Keys(in), object.Key.Compare) {
			all = append(all, in[k]...)
		}
	}
	slices.SortStableFunc(all, func(a, b problem.Problem) int { return cmp.Compare(a.Object, b.Object) })
	return all
}
