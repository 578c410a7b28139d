// Package desired contains the frontends that a data plane should have, as the plan
// requests them and as each data plane lists them. The configuration of a Service belongs
// in core/service, the data planes themselves in dataplane.
package desired

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/core/service"
)

// Frontend is the desired state of a data plane for one VIP:port.
type Frontend struct {
	service.Key
	// These fields have the same meaning as in service.Service. An empty Encapsulation
	// means IPIP; an empty Survival means the best available with the other settings.
	Method        service.Method
	Encapsulation service.Encapsulation
	Scheduler     service.Scheduler
	RingSize      int
	Survival      service.Survival
	Affinity      time.Duration
	Allow, Deny   []netip.Prefix
	Limits        service.Limits
	// SYNProtection applies to frontends that serve TCP.
	SYNProtection service.SYNProtection
	// Backends lists the backends, sorted by address. Weight 0 drains: established flows
	// stay, new flows go elsewhere. Never empty.
	Backends []service.Backend
}

// FrontendOf returns the desired frontend for one key of s with the given backends.
func FrontendOf(s *service.Service, k service.Key, backends []service.Backend) Frontend {
	return Frontend{
		Key: k, Method: s.Method, Encapsulation: s.Encapsulation, Scheduler: s.Scheduler, RingSize: s.RingSize,
		Survival: s.Survival, Affinity: s.Affinity, Allow: s.Allow, Deny: s.Deny, Limits: s.Limits, SYNProtection: s.SYNProtection, Backends: backends,
	}
}

// Stateful reports whether a data plane must track every flow of f: because its
// forwarding mode translates replies, because its scheduler decides per flow, or because
// it is configured to.
func (f Frontend) Stateful() bool {
	return service.NeedsFlowTable(f.Method, f.Scheduler) || f.Survival == service.FlowTable || f.Affinity > 0 ||
		slices.ContainsFunc(f.Backends, func(b service.Backend) bool { return b.MaxConns > 0 })
}

// SecondChance reports whether packets of f carry the addresses of backends that may know
// the flow.
func (f Frontend) SecondChance() bool {
	return !f.Stateful() && (f.Survival == service.SecondChance || f.Survival == "" && f.Method != service.DR)
}

// HashBy returns the part of a flow that selects its slot.
func (f Frontend) HashBy() schedule.By {
	switch {
	case f.Scheduler == service.DestinationHash:
		return schedule.ByVIP
	case f.Scheduler == service.SourceHash || f.Affinity > 0:
		return schedule.ByClient
	}
	return schedule.ByFlow
}

// Guarded reports whether f has access lists or rate limits.
func (f Frontend) Guarded() bool {
	return len(f.Allow) > 0 || len(f.Deny) > 0 || f.Limits != service.Limits{}
}

// Protection returns when f is protected against SYN floods. It is SYNOff unless f serves
// TCP.
func (f Frontend) Protection() service.SYNProtection {
	if f.Protocol != service.TCP && f.Protocol != service.AnyProtocol {
		return service.SYNOff
	}
	return cmp.Or(f.SYNProtection, service.SYNOff)
}

// Same reports whether a data plane that has f already satisfies o without a write. Names
// and nodes are informational and do not count; neither does Backend.Drained, which is
// only read when draining begins.
func (f Frontend) Same(o Frontend) bool {
	return f.Key == o.Key && f.Method == o.Method && f.Encapsulation == o.Encapsulation && f.Scheduler == o.Scheduler &&
		f.RingSize == o.RingSize && f.Survival == o.Survival && f.Affinity == o.Affinity && f.Limits == o.Limits && f.Protection() == o.Protection() &&
		slices.Equal(f.Allow, o.Allow) && slices.Equal(f.Deny, o.Deny) && (f.Shares(o) || slices.EqualFunc(f.Backends, o.Backends, sameBackend))
}

// Shares reports whether the backends of both are the same memory, which nobody modifies.
func (f Frontend) Shares(o Frontend) bool {
	return len(f.Backends) == len(o.Backends) && (len(f.Backends) == 0 || &f.Backends[0] == &o.Backends[0])
}

func sameBackend(a, b service.Backend) bool {
	return a.Addr == b.Addr && a.Weight == b.Weight && a.MaxConns == b.MaxConns && a.Since.Equal(b.Since)
}

// Admits reports whether a client is allowed and not denied.
func (f Frontend) Admits(client netip.Addr) bool {
	has := func(p netip.Prefix) bool { return p.Contains(client) }
	return (len(f.Allow) == 0 || slices.ContainsFunc(f.Allow, has)) && !slices.ContainsFunc(f.Deny, has)
}
