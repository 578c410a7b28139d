package proxy

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/service"
)

// Problem is a part of a Service or its slices that is not served.
type Problem struct {
	Service service.ID `json:"service"`
	problem.Problem
}

func (b *builder) problem(field, format string, args ...any) {
	b.problems = append(b.problems, OfService(b.s.ID, field, format, args...))
}

// OfService returns a Problem with a field of the Service itself.
func OfService(id service.ID, field, format string, args ...any) Problem {
	return Problem{id, problem.Problem{Object: "Service " + id.String(), Field: field, Message: fmt.Sprintf(format, args...)}}
}

// checkPort reports whether a port can be served. If only its node port is invalid, it
// clears that.
func (b *builder) checkPort(i int, p *ServicePort) bool {
	field := func(name string) string { return fmt.Sprintf("spec.ports[%d].%s", i, name) }
	switch {
	case p.Port == 0:
		b.problem(field("port"), "0 is out of range; want 1 to 65535")
		return false
	case p.Protocol != service.TCP && p.Protocol != service.UDP && p.Protocol != service.SCTP:
		b.problem(field("protocol"), "%s is not served; want TCP, UDP or SCTP", p.Protocol)
		return false
	}
	for _, o := range b.s.Ports[:i] {
		if o.Protocol != p.Protocol {
			continue
		}
		if o.Port == p.Port {
			b.problem(field("port"), "%d/%s is given twice; only the first is served", p.Port, p.Protocol)
			return false
		}
		if p.NodePort != 0 && o.NodePort == p.NodePort {
			b.problem(field("nodePort"), "%d/%s is given twice; only the first is served", p.NodePort, p.Protocol)
			p.NodePort = 0
		}
	}
	return true
}

func (b *builder) checkAddresses() {
	s := b.s
	for i, a := range s.ClusterIPs {
		if err := service.CheckUnicast(a); err != nil {
			b.problem("spec.clusterIPs", "%s", err)
		} else if doubled(s.ClusterIPs[:i], a) {
			b.problem("spec.clusterIPs", "%s is the second of its family; only the first is served", a)
		}
	}
	for _, outer := range []struct {
		field string
		addrs []netip.Addr
	}{{"spec.externalIPs", s.ExternalIPs}, {"status.loadBalancer", s.LoadBalancerIPs}} {
		for _, a := range outer.addrs {
			if err := service.CheckUnicast(a); err != nil {
				b.problem(outer.field, "%s", err)
			} else if !slices.ContainsFunc(s.ClusterIPs, func(c netip.Addr) bool { return served(c) && c.Is4() == a.Is4() }) {
				b.problem(outer.field, "%s is of a family of which the Service has no cluster IP; add it to spec.ipFamilies", a)
			}
		}
	}
	for i, p := range s.SourceRanges {
		if !p.IsValid() {
			b.problem(fmt.Sprintf("spec.loadBalancerSourceRanges[%d]", i), "this is not a prefix; want one like 10.0.0.0/8")
		}
	}
	for _, a := range s.LoadBalancerIPs {
		if _, closed := b.allowed(a.Is4()); closed {
			b.problem("spec.loadBalancerSourceRanges", "none is of the family of %s, which therefore serves nobody; add one", a)
		}
	}
}

// checkSlices reports, once per slice, everything that yields no target.
func (b *builder) checkSlices() {
	for _, sl := range b.slices {
		report := func(field, format string, args ...any) {
			b.problems = append(b.problems, Problem{b.s.ID, problem.Problem{
				Object: "EndpointSlice " + sl.ID.Namespace + "/" + sl.ID.Name, Field: field, Message: fmt.Sprintf(format, args...),
			}})
		}
		for i, p := range sl.Ports {
			if p.Port == 0 {
				report(fmt.Sprintf("ports[%d].port", i), "0 is out of range; want 1 to 65535")
			}
		}
		bad, where := 0, 0
		for i := range sl.Endpoints {
			if e := &sl.Endpoints[i]; !sl.fits(e.Addr) || b.circles(sl, e) {
				if bad == 0 {
					where = i
				}
				bad++
			}
		}
		if bad > 0 {
			report(fmt.Sprintf("endpoints[%d].addresses", where), "%s%s", b.why(sl, &sl.Endpoints[where]), more(bad-1))
		}
	}
}

// circles reports whether an endpoint is excluded from some port because it is that port.
func (b *builder) circles(sl *Slice, e *Endpoint) bool {
	for _, sp := range sl.Ports {
		for _, p := range b.s.Ports {
			if p.Name == sp.Name && p.Protocol == sp.Protocol && b.isSelf(e, sp.Port, p) {
				return true
			}
		}
	}
	return false
}

func (b *builder) why(sl *Slice, e *Endpoint) string {
	if err := service.CheckUnicast(e.Addr); err != nil {
		return err.Error()
	}
	if e.Addr.Is6() != sl.IPv6 {
		return fmt.Sprintf("%s is of another family than its slice", e.Addr)
	}
	return fmt.Sprintf("%s is the Service's own address and port, which would send traffic in circles", e.Addr)
}

func more(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" (and %d more endpoints of this slice are not served)", n)
}
