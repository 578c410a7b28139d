package gateway

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/source/object"
)

// AsService returns the Service of type LoadBalancer that would request and have the
// Gateway's addresses, so that the annotations and labels for Services work on Gateways.
// Its ports are those of the accepted listeners.
func (g *Judged) AsService() *corev1.Service {
	s := &corev1.Service{TypeMeta: g.TypeMeta, ObjectMeta: *g.ObjectMeta.DeepCopy()}
	s.Name = ID(g.Gateway).Name
	class, policy := object.LoadBalancerClass, corev1.IPFamilyPolicyPreferDualStack
	s.Spec.Type, s.Spec.LoadBalancerClass, s.Spec.IPFamilyPolicy = corev1.ServiceTypeLoadBalancer, &class, &policy
	s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	var wanted []string
	for _, a := range g.Spec.Addresses {
		if a.Value != "" {
			wanted = append(wanted, a.Value)
		}
	}
	if len(wanted) > 0 {
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, object.AnnotationAddresses, strings.Join(wanted, ","))
	}
	for _, l := range g.Listeners {
		if l.Transport != 0 {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: l.Name, Protocol: corev1.Protocol(l.Protocol), Port: l.Port})
		}
	}
	for _, a := range g.Status.Addresses {
		if or(a.Type, TypeIPAddress) == TypeIPAddress {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a.Value})
		}
	}
	return s
}

// Served is a Gateway as balancers serve it.
type Served struct {
	// Service is nil if there is nothing to serve.
	Service *service.Service
	Faults  []object.Fault
}

// Serve converts a Gateway to the Service that balancers serve, with the backends that
// slicesOf returns for each Service behind it. before is the previous result: an unchanged
// Service is the same pointer, and a rejected change keeps the previous Service while the
// Gateway still has its addresses.
func (g *Judged) Serve(before Served, slicesOf func(service.ID) []*object.Object) (made Served) {
	like := g.AsService()
	if len(like.Status.LoadBalancer.Ingress) == 0 || len(like.Spec.Ports) == 0 {
		return made
	}
	o, faults := object.ReadService(like, object.Origin{Assigned: true})
	if o.Network() != "" {
		faults = append(faults, object.Fault{Field: "metadata.annotations[" + object.AnnotationNetwork + "]",
			Message: "is of Services only; a Gateway's servers have the addresses in their EndpointSlices: leave it out"})
	}
	if len(faults) > 0 {
		made.Faults = faults
		if was := before.Service; was != nil && !slices.ContainsFunc(was.Frontends, func(f service.Frontend) bool { return !g.has(f.VIP) }) {
			made.Service = was
		}
		return made
	}
	all := *object.Join(nil, o, nil, nil).Service
	frontends := all.Frontends
	all.Frontends = nil
	for _, f := range frontends {
		i := slices.IndexFunc(g.Listeners, func(l *Listening) bool { return l.Transport == f.Protocol && l.Port == int32(f.Port) })
		if i < 0 || len(g.Listeners[i].Backends) == 0 {
			continue
		}
		var parts []part
		for _, b := range g.Listeners[i].Backends {
			joined := g.join(like, f, b, slicesOf(b.Service))
			parts = append(parts, part{joined.backends(f.Key), b.Weight})
			made.Faults = append(made.Faults, joined.faults(b.Service)...)
		}
		f.Backends = mix(parts)
		all.Frontends = append(all.Frontends, f)
	}
	if len(all.Frontends) > 0 {
		made.Service = &all
	}
	if reflect.DeepEqual(before.Service, made.Service) {
		made.Service = before.Service
	}
	return made
}

func (g *Judged) has(vip netip.Addr) bool {
	return slices.ContainsFunc(g.Status.Addresses, func(a Address) bool { return a.Value == vip.String() })
}

// joined is a Gateway's Service with the backends of one of the Services behind it.
type joined struct{ *object.Joined }

// join gives a frontend the backends of a Service, as if the Gateway's Service had only its
// port, with the name that the slices use.
func (g *Judged) join(like *corev1.Service, f service.Frontend, b Backend, its []*object.Object) joined {
	one := *like
	one.Spec.Ports = []corev1.ServicePort{{Name: b.Port.Name, Protocol: corev1.Protocol(f.Protocol.String()), Port: int32(f.Port)}}
	o, _ := object.ReadService(&one, object.Origin{Assigned: true}) // errors of the entire Service are reported for it
	if !o.Ours() {
		return joined{&object.Joined{Service: &service.Service{}}}
	}
	return joined{object.Join(nil, o, its, nil)}
}

func (j joined) backends(k service.Key) []service.Backend {
	for _, f := range j.Service.Frontends {
		if f.Key == k {
			return f.Backends
		}
	}
	return nil
}

func (j joined) faults(of service.ID) (all []object.Fault) {
	for _, p := range j.Problems {
		all = append(all, object.Fault{Field: "Service " + of.String(), Message: p.Message})
	}
	return all
}

// part is a group of backends with their common weight.
type part struct {
	backends []service.Backend
	weight   uint32
}

// mix gives each part its share, whatever the number of its backends. An address in several
// parts gets the sum of its shares.
func mix(parts []part) []service.Backend {
	if len(parts) == 1 && parts[0].weight > 0 {
		return parts[0].backends
	}
	common := uint64(1) // common multiple of the sums of weights within parts
	for _, p := range parts {
		if s := p.sum(); s > 0 && common < 1<<32 {
			common = common / gcd(common, s) * s
		}
	}
	all := map[netip.AddrPort]service.Backend{}
	weights := map[netip.AddrPort]uint64{}
	for _, p := range parts {
		s := max(p.sum(), 1)
		for _, b := range p.backends {
			weights[b.Addr] += uint64(p.weight) * uint64(b.Weight) * max(common/s, 1)
			if was, ok := all[b.Addr]; !ok || was.Draining() {
				all[b.Addr] = b
			}
		}
	}
	return settle(all, weights)
}

// settle sets the weights of backends, reduced to the smallest values and to
// service.MaxWeight.
func settle(all map[netip.AddrPort]service.Backend, weights map[netip.AddrPort]uint64) (mixed []service.Backend) {
	divisor, most := uint64(0), uint64(0)
	for _, w := range weights {
		if w > 0 {
			divisor, most = gcd(divisor, w), max(most, w)
		}
	}
	divisor = max(divisor, 1)
	over := max(1, (most/divisor+service.MaxWeight-1)/service.MaxWeight)
	for _, addr := range slices.SortedFunc(maps.Keys(all), netip.AddrPort.Compare) {
		b := all[addr]
		b.Weight = uint32(weights[addr] / divisor / over)
		if b.Weight == 0 && weights[addr] > 0 {
			b.Weight = 1
		}
		mixed = append(mixed, b)
	}
	return mixed
}

func (p part) sum() (n uint64) {
	for _, b := range p.backends {
		n += uint64(b.Weight)
	}
	return n
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
