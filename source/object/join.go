package object

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/service"
)

// Joined is a Service with its backends, and the objects it was computed from.
type Joined struct {
	Service  *service.Service
	Problems []problem.Problem
	reported map[problem.Problem]bool // set of Problems
	object   *Object
	// slices are the given ones, except while the Service is built, when they are replaced
	// with those on the Service's network. pods are those of all endpoints in order, if the
	// Service is on a secondary network.
	slices, pods []*Object
	given        []*Object
}

// Join joins a Service with the backends of its slices, at the addresses that their pods
// have in the Service's network if it has one. before is the previous result, or nil: an
// unchanged Service is the same pointer, at no cost.
func Join(before *Joined, o *Object, its []*Object, pods Pods) *Joined {
	j := &Joined{object: o, slices: its, given: its}
	j.pods = j.podsOf(pods)
	if before != nil && before.object == o && slices.Equal(before.slices, its) && slices.Equal(before.pods, j.pods) {
		return before
	}
	if o.Network() != "" {
		j.slices = j.onNetwork()
	}
	j.build()
	j.slices, j.reported = its, nil
	if before != nil && reflect.DeepEqual(before.Service, j.Service) {
		j.Service = before.Service
	}
	return j
}

// build sets the backends of each frontend.
func (j *Joined) build() {
	l := j.object.service
	s := l.template
	s.Origin = j.object.Where()
	s.Frontends = slices.Clone(s.Frontends)
	used := map[*Object]bool{}
	for i := range s.Frontends {
		f := &s.Frontends[i]
		its := j.ofFamily(f.VIP, s.Method)
		for _, o := range its {
			used[o] = true
		}
		if f.Backends = j.backends(f, its); len(f.Backends) == 0 {
			f.NoBackends = j.noBackends(f, its)
		}
	}
	j.Service = &s
	j.reportFamilies(used)
	j.reportPorts()
	j.reportSettings(used)
}

// ofFamily returns the slices with usable backends for a VIP: those of its family or, if
// none of them has an endpoint and the forwarding mode is tunnel, those of the other.
func (j *Joined) ofFamily(vip netip.Addr, method service.Method) []*Object {
	var same, other []*Object
	for _, o := range j.slices {
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

// backends returns the backends of one frontend: those that are ready, and those that are
// terminating with weight 0. If none is ready, the terminating ones continue to serve.
func (j *Joined) backends(f *service.Frontend, its []*Object) []service.Backend {
	var up, going []service.Backend
	for _, o := range its {
		port, ok := j.port(f, o)
		if !ok {
			continue
		}
		for _, e := range o.slice.endpoints {
			b := service.Backend{
				Addr: netip.AddrPortFrom(e.addr, port), Weight: j.weight(o, e.addr), Name: e.name, Node: e.node,
				MaxConns: j.object.service.maxConns.of(e.addr), Since: o.slice.since[e.addr].since, Drained: o.slice.since[e.addr].drained,
			}
			if b.Since.IsZero() {
				b.Since = o.Created
			}
			switch {
			case e.addr == f.VIP:
				j.report(o, o.Line, "endpoints", "%s is a VIP of Service %s/%s and cannot be its own server; it is left out",
					e.addr, o.Key.Namespace, o.slice.serviceName)
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

// undrain clears the drain time of backends that take new flows.
func undrain(backends []service.Backend) []service.Backend {
	for i := range backends {
		if !backends[i].Draining() {
			backends[i].Drained = time.Time{}
		}
	}
	return backends
}

// port returns the port on which a slice's endpoints serve a frontend, if they do.
func (j *Joined) port(f *service.Frontend, o *Object) (uint16, bool) {
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
	err := service.CheckPort(j.object.service.template.Method, f.Key, port)
	switch {
	case f.Range() && port == f.Port:
		return 0, true
	case f.Range():
		err = fmt.Errorf("%d is not %d, where the range begins; servers get packets on the port that the client addressed", port, f.Port)
	}
	if err != nil {
		j.report(o, o.Line, fmt.Sprintf("ports[%d].port", i), "%s; its endpoints are left out", err)
	}
	return port, err == nil
}

// weight returns an endpoint's weight from the slice, else from the Service, else 1.
func (j *Joined) weight(o *Object, a netip.Addr) uint32 {
	if w, ok := o.slice.weights[a]; ok {
		return w
	}
	if w, ok := j.object.service.weights[a]; ok {
		return w
	}
	return 1
}

// report records a problem, once.
func (j *Joined) report(o *Object, line int, field, format string, args ...any) {
	p := o.Problem(line, field, format, args...)
	if j.reported[p] {
		return
	}
	if j.reported == nil {
		j.reported = map[problem.Problem]bool{}
	}
	j.reported[p] = true
	j.Problems = append(j.Problems, p)
}

// reportFamilies reports slices that no VIP can use because of their family.
func (j *Joined) reportFamilies(used map[*Object]bool) {
	for _, o := range j.slices {
		if used[o] || len(o.slice.endpoints) == 0 {
			continue
		}
		fix := fmt.Sprintf("give the Service an %s address, or its servers %s ones", family(o.slice.ipv6), family(!o.slice.ipv6))
		if j.object.service.template.Method == service.Tunnel {
			fix = fmt.Sprintf("its %s endpoints are used", family(!o.slice.ipv6))
		}
		j.report(o, o.slice.typeLine, "addressType", "%s is the family of no VIP of %s (%s); %s",
			family(o.slice.ipv6), j.object.Key, j.object.service.vipList(), fix)
	}
}

func (l *listener) vipList() string {
	var words []string
	for _, a := range l.vips {
		words = append(words, a.String())
	}
	return strings.Join(words, ", ")
}

// reportPorts reports ports of the Service that no slice with endpoints has.
func (j *Joined) reportPorts() {
	for _, p := range j.object.service.ports {
		if p.protocol == service.AnyProtocol {
			continue // served on every port
		}
		var has []string
		found := false
		for _, o := range j.slices {
			if len(o.slice.endpoints) == 0 {
				found = true // it may still get ports
				continue
			}
			for _, sp := range o.slice.ports {
				has = append(has, portName(sp.protocol, sp.name))
				found = found || sp.name == p.name && sp.protocol == p.protocol
			}
		}
		if !found && len(j.slices) > 0 {
			slices.Sort(has)
			j.report(j.object, p.line, p.field+".name", "no EndpointSlice of the Service has the port %s; they have %s",
				portName(p.protocol, p.name), cmp.Or(strings.Join(slices.Compact(has), ", "), "none"))
		}
	}
}

// reportSettings reports settings for addresses that are no endpoints.
func (j *Joined) reportSettings(used map[*Object]bool) {
	all := map[netip.Addr]bool{}
	for _, o := range j.slices {
		own := map[netip.Addr]bool{}
		for _, e := range o.slice.endpoints {
			own[e.addr], all[e.addr] = true, true
		}
		reportUnknown(j, o, o.slice.weightsLine, AnnotationWeights, o.slice.weights, own)
		if o.File != "" { // in a cluster it is written slightly later than the rest
			reportUnknown(j, o, o.slice.sinceLine, AnnotationBackendTimestamps, o.slice.since, own)
		}
	}
	if len(used) > 0 {
		l := j.object.service
		reportUnknown(j, j.object, l.weightsLine, AnnotationWeights, l.weights, all)
		reportUnknown(j, j.object, l.maxConnsLine, AnnotationMaxConnections, l.maxConns.each, all)
	}
}

func reportUnknown[T any](j *Joined, o *Object, line int, name string, said map[netip.Addr]T, endpoints map[netip.Addr]bool) {
	what := map[string]string{AnnotationWeights: "that weight", AnnotationBackendTimestamps: "that time", AnnotationMaxConnections: "that limit"}[name]
	for _, a := range slices.SortedFunc(maps.Keys(said), netip.Addr.Compare) {
		if !endpoints[a] {
			j.report(o, line, annotation(name), "%s is none of its endpoints; %s does nothing", a, what)
		}
	}
}
