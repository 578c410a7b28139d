package manifest

import (
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

// join makes Services of objects, none of which has the key of another.
func (j *joiner) join(objects []*object.Object) (services []*service.Service, problems []source.Problem) {
	slicesOf := map[object.Key][]*object.Object{}
	known := map[object.Key]*object.Object{}
	for _, o := range objects {
		known[o.Key] = o
		if o.Key.Kind == object.KindSlice {
			slicesOf[owner(o)] = append(slicesOf[owner(o)], o)
		}
	}
	pods := func(id service.ID) *object.Object {
		return known[object.Key{Kind: object.KindPod, Namespace: id.Namespace, Name: id.Name}]
	}
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

// owner is the Service that a slice belongs to.
func owner(o *object.Object) object.Key {
	return object.Key{Kind: object.KindService, Namespace: o.Service().Namespace, Name: o.Service().Name}
}
