package manifest

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/service"
	"github.com/fairlead/fairlead/source"
)

// joiner puts Services and their EndpointSlices together. It remembers what
// came out, so that what did not change is the same pointer again and costs
// nothing. Apart from that memory it is pure.
type joiner struct {
	made map[key]*joined
}

// joined is a Service with its servers, and what it was made of.
type joined struct {
	service  *object
	slices   []*object
	result   *service.Service
	problems []source.Problem
}

// join makes Services of objects. Objects that stand first win over later
// ones with the same key, unless those are older.
func (j *joiner) join(objects []*object) ([]*service.Service, []source.Problem) {
	objects, problems := unique(objects)
	bySvc := map[key][]*object{}
	known := map[key]bool{}
	for _, o := range objects {
		known[o.key] = true
		if o.slice != nil {
			k := key{kindService, o.key.namespace, o.slice.serviceName}
			bySvc[k] = append(bySvc[k], o)
		}
	}
	var services []*service.Service
	made := make(map[key]*joined, len(j.made))
	for _, o := range objects {
		switch {
		case o.service != nil && o.service.ours:
			m := j.one(o, bySvc[o.key])
			made[o.key] = m
			services = append(services, m.result)
			problems = append(problems, m.problems...)
		case o.slice != nil && !known[key{kindService, o.key.namespace, o.slice.serviceName}]:
			problems = append(problems, o.problem(o.line, "",
				"belongs to Service %s/%s, which is not in this folder; harmless, but it serves nothing",
				o.key.namespace, o.slice.serviceName))
		}
	}
	j.made = made
	return services, problems
}

// unique sorts objects by key and leaves one of each.
func unique(objects []*object) (out []*object, problems []source.Problem) {
	objects = slices.Clone(objects)
	slices.SortStableFunc(objects, func(a, b *object) int { return a.key.compare(b.key) })
	for _, o := range objects {
		last := len(out) - 1
		switch {
		case last < 0 || out[last].key != o.key:
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

// one joins one Service.
func (j *joiner) one(o *object, its []*object) *joined {
	old := j.made[o.key]
	if old != nil && old.service == o && slices.Equal(old.slices, its) {
		return old
	}
	m := &joined{service: o, slices: its}
	m.build()
	if old != nil && reflect.DeepEqual(old.result, m.result) {
		m.result = old.result
	}
	return m
}

// build gives each frontend its backends.
func (m *joined) build() {
	l := m.service.service
	s := l.template
	s.Origin = m.service.where()
	s.Frontends = slices.Clone(s.Frontends)
	used := map[*object]bool{}
	for i := range s.Frontends {
		f := &s.Frontends[i]
		its := m.ofFamily(f.VIP, s.Method)
		for _, o := range its {
			used[o] = true
		}
		f.Backends = m.backends(f, its)
	}
	m.result = &s
	m.tellFamilies(used)
	m.tellPorts()
	m.tellSaid(used)
}

// ofFamily gives the slices whose servers a VIP can have: those of its own
// family, or, where there are none with any endpoint and the method is tunnel,
// those of the other.
func (m *joined) ofFamily(vip netip.Addr, method service.Method) []*object {
	var same, other []*object
	for _, o := range m.slices {
		switch {
		case len(o.slice.endpoints) == 0:
		case o.slice.ipv6 == vip.Is6():
			same = append(same, o)
		default:
			other = append(other, o)
		}
	}
	if len(same) == 0 && method == service.Tunnel {
		return other
	}
	return same
}

// backends gives the servers of one frontend: those that are ready, and with
// weight 0 those that are leaving. Where none is ready those that are leaving
// serve on.
func (m *joined) backends(f *service.Frontend, its []*object) []service.Backend {
	var up, going []service.Backend
	for _, o := range its {
		port, ok := m.port(f, o)
		if !ok {
			continue
		}
		for _, e := range o.slice.endpoints {
			b := service.Backend{
				Addr: netip.AddrPortFrom(e.addr, port), Weight: m.weight(o, e.addr), Name: e.name, Node: e.node,
				MaxConns: m.service.service.maxConns.of(e.addr), Since: o.slice.since[e.addr].since, Drained: o.slice.since[e.addr].drained,
			}
			if b.Since.IsZero() {
				b.Since = o.slice.created
			}
			switch {
			case e.addr == f.VIP:
				m.tell(o, o.line, "endpoints", "%s is a VIP of Service %s/%s and cannot be its own server; it is left out",
					e.addr, o.key.namespace, o.slice.serviceName)
			case e.use == ready:
				up = append(up, b)
			case e.use == leaving:
				going = append(going, b)
			}
		}
	}
	if len(up) == 0 {
		return service.SortBackends(undrain(going))
	}
	for i := range going {
		going[i].Weight = 0
	}
	// An address that is both, in two slices, is ready: the first counts.
	return service.SortBackends(undrain(append(up, going...)))
}

// undrain forgets since when those drained that take new flows.
func undrain(backends []service.Backend) []service.Backend {
	for i := range backends {
		if !backends[i].Draining() {
			backends[i].Drained = time.Time{}
		}
	}
	return backends
}

// port gives the port on which a slice's endpoints serve a frontend, if they
// do.
func (m *joined) port(f *service.Frontend, o *object) (uint16, bool) {
	if f.Whole() {
		return 0, true
	}
	i := slices.IndexFunc(o.slice.ports, func(p slicePort) bool {
		return p.name == f.PortName && p.protocol == f.Protocol
	})
	if i < 0 {
		return 0, false
	}
	port := o.slice.ports[i].number
	err := service.CheckPort(m.service.service.template.Method, f.Key, port)
	switch {
	case f.Range() && port == f.Port:
		return 0, true
	case f.Range():
		err = fmt.Errorf("%d is not %d, where the range begins; servers get packets on the port that the client addressed", port, f.Port)
	}
	if err != nil {
		m.tell(o, o.line, fmt.Sprintf("ports[%d].port", i), "%s; its endpoints are left out", err)
	}
	return port, err == nil
}

// weight gives an endpoint's weight: the slice's word, else the Service's,
// else 1.
func (m *joined) weight(o *object, a netip.Addr) uint32 {
	if w, ok := o.slice.weights[a]; ok {
		return w
	}
	if w, ok := m.service.service.weights[a]; ok {
		return w
	}
	return 1
}

// tell notes a problem, once.
func (m *joined) tell(o *object, line int, field, format string, args ...any) {
	p := o.problem(line, field, format, args...)
	if !slices.Contains(m.problems, p) {
		m.problems = append(m.problems, p)
	}
}

// tellFamilies names slices that no VIP can use because of their family.
func (m *joined) tellFamilies(used map[*object]bool) {
	for _, o := range m.slices {
		if used[o] || len(o.slice.endpoints) == 0 {
			continue
		}
		mend := fmt.Sprintf("give the Service an %s address, or its servers %s ones", family(o.slice.ipv6), family(!o.slice.ipv6))
		if m.service.service.template.Method == service.Tunnel {
			mend = fmt.Sprintf("its %s endpoints are used", family(!o.slice.ipv6))
		}
		m.tell(o, o.slice.typeLine, "addressType", "%s is the family of no VIP of %s (%s); %s",
			family(o.slice.ipv6), m.service.key, m.service.service.vipList(), mend)
	}
}

func (l *listener) vipList() string {
	var words []string
	for _, a := range l.vips {
		words = append(words, a.String())
	}
	return strings.Join(words, ", ")
}

// tellPorts names ports of the Service that no slice with endpoints has.
func (m *joined) tellPorts() {
	for _, p := range m.service.service.ports {
		if p.protocol == service.AnyProtocol {
			continue // served on every port
		}
		var has []string
		found := false
		for _, o := range m.slices {
			if len(o.slice.endpoints) == 0 {
				found = true // it may yet get ports
				continue
			}
			for _, sp := range o.slice.ports {
				has = append(has, fmt.Sprintf("%s %q", sp.protocol, sp.name))
				found = found || sp.name == p.name && sp.protocol == p.protocol
			}
		}
		if !found && len(m.slices) > 0 {
			slices.Sort(has)
			m.tell(m.service, p.line, p.field+".name", "no EndpointSlice of the Service has a %s port named %q; they have %s",
				p.protocol, p.name, cmp.Or(strings.Join(slices.Compact(has), ", "), "none"))
		}
	}
}

// tellSaid names what is said of addresses that are no endpoint.
func (m *joined) tellSaid(used map[*object]bool) {
	all := map[netip.Addr]bool{}
	for _, o := range m.slices {
		own := map[netip.Addr]bool{}
		for _, e := range o.slice.endpoints {
			own[e.addr], all[e.addr] = true, true
		}
		tellStrangers(m, o, o.slice.weightsLine, AnnotationWeights, o.slice.weights, own)
		tellStrangers(m, o, o.slice.sinceLine, AnnotationSince, o.slice.since, own)
	}
	if len(used) > 0 {
		l := m.service.service
		tellStrangers(m, m.service, l.weightsLine, AnnotationWeights, l.weights, all)
		tellStrangers(m, m.service, l.maxConnsLine, AnnotationMaxConnections, l.maxConns.each, all)
	}
}

func tellStrangers[T any](m *joined, o *object, line int, name string, said map[netip.Addr]T, endpoints map[netip.Addr]bool) {
	what := map[string]string{AnnotationWeights: "that weight", AnnotationSince: "that time", AnnotationMaxConnections: "that limit"}[name]
	for _, a := range slices.SortedFunc(maps.Keys(said), netip.Addr.Compare) {
		if !endpoints[a] {
			m.tell(o, line, annotation(name), "%s is none of its endpoints; %s does nothing", a, what)
		}
	}
}
