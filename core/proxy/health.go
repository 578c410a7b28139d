package proxy

import "net/netip"

// HealthCheck is the answer of a Service's health check node port on this node. Zero
// value: none.
type HealthCheck struct {
	Port uint16
	// IPv4 and IPv6 are the families that the Service has and on which the port listens.
	IPv4, IPv6 bool
	// Ready4 and Ready6 count the ready endpoints on this node in each family. Endpoints
	// that are terminating but serving do not count, so that new clients stay away
	// (KEP-1669).
	Ready4, Ready6 int
}

// HealthOf returns the health check of a Service with the given slices.
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

// ready counts the addresses of local endpoints that are ready for some port.
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
