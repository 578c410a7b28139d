package manifest

import (
	"slices"

	"github.com/fairlead/fairlead/service"
	"github.com/fairlead/fairlead/source"
	"github.com/fairlead/fairlead/source/object"
)

// joiner puts Services and their EndpointSlices together. It remembers what
// came out, so that what did not change is the same pointer again and costs
// nothing. Apart from that memory it is pure.
type joiner struct {
	made map[object.Key]*object.Joined
}

// join makes Services of objects. Objects that stand first win over later
// ones with the same key, unless those are older.
func (j *joiner) join(objects []*object.Object) ([]*service.Service, []source.Problem) {
	objects, problems := unique(objects)
	slicesOf := map[object.Key][]*object.Object{}
	known := byKey(objects)
	for _, o := range objects {
		if o.Key.Kind == object.KindSlice {
			slicesOf[owner(o)] = append(slicesOf[owner(o)], o)
		}
	}
	pods := podsAmong(known)
	var services []*service.Service
	made := make(map[object.Key]*object.Joined, len(j.made))
	for _, o := range objects {
		switch {
		case o.Ours():
			m := object.Join(j.made[o.Key], o, slicesOf[o.Key], pods)
			made[o.Key] = m
			services = append(services, m.Service)
			problems = append(problems, m.Problems...)
		case o.Key.Kind == object.KindSlice && known[owner(o)] == nil:
			problems = append(problems, o.Problem(o.Line, "",
				"belongs to %s, which is not in this folder, or is refused; harmless, but it serves nothing", owner(o)))
		}
	}
	j.made = made
	return services, problems
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

// owner is the Service that a slice belongs to.
func owner(o *object.Object) object.Key {
	return object.Key{Kind: object.KindService, Namespace: o.Service().Namespace, Name: o.Service().Name}
}

// unique sorts objects by key and leaves one of each.
func unique(objects []*object.Object) (out []*object.Object, problems []source.Problem) {
	objects = slices.Clone(objects)
	slices.SortStableFunc(objects, func(a, b *object.Object) int { return a.Key.Compare(b.Key) })
	for _, o := range objects {
		last := len(out) - 1
		switch {
		case last < 0 || out[last].Key != o.Key:
			out = append(out, o)
		case newer(out[last], o):
			problems = append(problems, twice(o, out[last]))
		default:
			problems = append(problems, twice(out[last], o))
			out[last] = o
		}
	}
	return out, problems
}

// newer says whether o loses against first, which stands before it: the older
// wins, and the first where either's age is not known.
func newer(first, o *object.Object) bool {
	if first.Created.IsZero() || o.Created.IsZero() {
		return true
	}
	return !o.Created.Before(first.Created)
}

// twice is the Problem of an object whose key another has.
func twice(loser, winner *object.Object) source.Problem {
	why := "comes first"
	if winner.Created.Before(loser.Created) && !winner.Created.IsZero() {
		why = "is older"
	}
	return loser.Problem(loser.Line, "metadata.name", "is also in %s, which %s and is used; remove or rename one of the two",
		winner.Where(), why)
}
