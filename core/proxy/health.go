package proxy

import "net/netip"

// HealthCheck is what a Service's health check node port is to answer on this
// node; the zero value: there is none.
type HealthCheck struct {
	Port uint16
	// IPv4 and IPv6 are the families that the Service has; it is asked in them.
	IPv4, IPv6 bool
	// Ready4 and Ready6 count the ready endpoints on this node, in each family. One that only
	// terminates, though it still serves, is not counted: new clients shall stay
	// away (KEP-1669).
	Ready4, Ready6 int
}

// HealthOf gives the health check of a Service whose slices are given.
func HealthOf(s *Service, slices []*Slice, n Node) HealthCheck {
	if s == nil || s.HealthCheckNodePort == 0 || !s.ExternalLocal {
		return HealthCheck{}
	}
	b := builder{s: s, slices: slices, node: n}
	h := HealthCheck{}
	for _, ip := range s.ClusterIPs {
		if !served(ip) {
			continue
		}
		h.Port = s.HealthCheckNodePort
		if ip.Is4() {
			h.IPv4, h.Ready4 = true, b.ready(ip)
		} else {
			h.IPv6, h.Ready6 = true, b.ready(ip)
		}
	}
	return h
}

// ready counts the addresses of the local endpoints that are ready for some port.
func (b *builder) ready(clusterIP netip.Addr) int {
	ready := map[netip.Addr]bool{}
	for _, p := range b.s.Ports {
		for _, c := range b.candidates(nil, p, clusterIP) {
			if c.Ready && b.local(c.Endpoint) {
				ready[c.Addr] = true
			}
		}
	}
	return len(ready)
}
