package manifest

import (
	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/suggest"
	"github.com/fairlead/fairlead/source/crd"
	"github.com/fairlead/fairlead/source/object"
)

// joiner joins Services with their EndpointSlices. It remembers the results, so that an
// unchanged Service is the same pointer and costs nothing. Apart from that it is pure.
type joiner struct {
	made map[object.Key]*object.Joined
}

// join creates Services from objects with unique keys; known has the same objects by key.
// refused are those left out because of faults.
func (j *joiner) join(objects []*object.Object, known map[object.Key]*object.Object, refused []object.Key) (services []*service.Service, problems []problem.Problem) {
	slicesOf := map[object.Key][]*object.Object{}
	rejected := map[object.Key]bool{}
	for _, k := range refused {
		rejected[k] = true
	}
	// A rejected Service has its own problem. One without a name may be any.
	missing := func(k object.Key) bool {
		return known[k] == nil && !rejected[k] && !rejected[object.Key{Kind: k.Kind}] && !rejected[object.Key{}]
	}
	for _, o := range objects {
		if o.Key.Kind == object.KindSlice {
			slicesOf[owner(o)] = append(slicesOf[owner(o)], o)
		}
	}
	pods := podsAmong(known)
	var alone orphans
	made := make(map[object.Key]*object.Joined, len(j.made))
	for _, o := range objects {
		switch {
		case o.Ours():
			m := object.Join(j.made[o.Key], o, slicesOf[o.Key], pods)
			made[o.Key] = m
			services = append(services, m.Service)
			problems = append(problems, m.Problems...)
		case o.Key.Kind == object.KindSlice && missing(owner(o)):
			problems = append(problems, alone.problem(o, objects))
		}
	}
	j.made = made
	return services, problems
}

// orphans reports slices without a Service.
type orphans struct {
	byName map[string]*object.Object // Services; nil until there is an orphan
	names  map[string][]string       // of Services by namespace
}

// maxNames limits the number of Services among which to search for a similar name.
const maxNames = 500

func (r *orphans) know(objects []*object.Object) {
	if r.byName != nil {
		return
	}
	r.byName, r.names = map[string]*object.Object{}, map[string][]string{}
	for _, s := range objects {
		if s.Ours() {
			r.byName[s.Key.Name] = s
			r.names[s.Key.Namespace] = append(r.names[s.Key.Namespace], s.Key.Name)
		}
	}
}

// problem returns the Problem of an orphan.
func (r *orphans) problem(o *object.Object, objects []*object.Object) problem.Problem {
	r.know(objects)
	if s := r.byName[o.Service().Name]; s != nil {
		return o.Problem(o.Line, "metadata.namespace", "belongs to %s, which is not in this folder; an EndpointSlice is of a Service in its own namespace: to serve %s (%s), move it to namespace %s",
			owner(o), s.Key, s.Where(), s.Key.Namespace)
	}
	meant := ""
	if names := r.names[o.Service().Namespace]; len(names) <= maxNames {
		meant = suggest.DidYouMean(o.Service().Name, names)
	}
	return o.Problem(o.Line, "", "belongs to %s, which is not in this folder; it serves nothing until that is there%s", owner(o), meant)
}

func byKey(objects []*object.Object) map[object.Key]*object.Object {
	known := make(map[object.Key]*object.Object, len(objects))
	for _, o := range objects {
		known[o.Key] = o
	}
	return known
}

func podsAmong(known map[object.Key]*object.Object) object.Pods {
	return func(id service.ID) *object.Object {
		return known[object.Key{Kind: object.KindPod, Namespace: id.Namespace, Name: id.Name}]
	}
}

// owner returns the key of the Service that a slice belongs to.
func owner(o *object.Object) object.Key {
	return object.Key{Kind: object.KindService, Namespace: o.Service().Namespace, Name: o.Service().Name}
}

// quarantinesIn returns what the Quarantines among objects drain.
func quarantinesIn(objects []*object.Object) []service.Quarantine {
	var all []*v1alpha1.Quarantine
	for _, o := range objects {
		if q, ok := o.Value.(*v1alpha1.Quarantine); ok {
			all = append(all, q)
		}
	}
	valid, _ := crd.QuarantinesOf(all) // invalid ones are already rejected
	return valid
}
