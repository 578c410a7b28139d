package manifest

import (
	"cmp"
	"slices"

	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/internal/truefirst"
	"github.com/fairlead/fairlead/source/object"
)

// unique sorts objects by key and selects one per key: the one that was already in use;
// otherwise the older one; if the age is unknown, the first. It remembers which are in use.
func (d *folder) unique(objects []*object.Object) (out []*object.Object, problems []problem.Problem) {
	objects = slices.Clone(objects)
	slices.SortStableFunc(objects, func(a, b *object.Object) int { return a.Key.Compare(b.Key) })
	losers := map[*object.Object]bool{}
	used := d.used()
	for first := 0; first < len(objects); {
		end := first + 1
		for end < len(objects) && objects[end].Key == objects[first].Key {
			end++
		}
		winner := choose(objects[first:end], used)
		for _, o := range objects[first:end] {
			if o != winner {
				losers[o] = true
				problems = append(problems, twice(o, winner, used(winner)))
			}
		}
		out = append(out, winner)
		first = end
	}
	d.inUse = make(map[object.Key]string, len(out))
	for _, o := range out {
		d.inUse[o.Key] = o.File
	}
	d.noteUnused(losers)
	return out, problems
}

// choose selects one of several objects with the same key.
func choose(same []*object.Object, used func(*object.Object) bool) *object.Object {
	if len(same) == 1 {
		return same[0]
	}
	return slices.MinFunc(same, func(a, b *object.Object) int { // the first of equals
		return cmp.Or(truefirst.Compare(used(a), used(b)), older(a, b))
	})
}

// used returns a function that reports whether an object was already in use by this agent
// or by the previous one. For the latter it reads each file's state once, on demand.
func (d *folder) used() func(*object.Object) bool {
	if d.inUse != nil {
		return func(o *object.Object) bool {
			file, known := d.inUse[o.Key]
			return known && file == o.File
		}
	}
	byFile := map[string]map[object.Key]bool{}
	return func(o *object.Object) bool {
		its, read := byFile[o.File]
		if !read {
			its = d.saved.used(o.File)
			byFile[o.File] = its
		}
		return its[o.Key]
	}
}

// noteUnused records in the files which of their objects are not in use.
func (d *folder) noteUnused(losers map[*object.Object]bool) {
	for _, f := range d.files {
		for _, o := range f.objects {
			if f.unused[o.Key] == losers[o] {
				continue
			}
			if f.unused == nil {
				f.unused = map[object.Key]bool{}
			}
			f.unused[o.Key], f.unsaved = losers[o], true
		}
	}
}

// older compares two objects with the same key by age; an unknown age comes last.
func older(a, b *object.Object) int {
	return cmp.Or(truefirst.Compare(!a.Created.IsZero(), !b.Created.IsZero()), a.Created.Compare(b.Created))
}

// twice is the Problem of an object whose key another has.
func twice(loser, winner *object.Object, used bool) problem.Problem {
	why := "comes first"
	switch {
	case used:
		why = "was there first"
	case older(winner, loser) < 0:
		why = "is older"
	}
	return loser.Problem(loser.Line, "metadata.name", "is also in %s, which %s and is used; remove or rename one of the two",
		winner.Where(), why)
}
