// Package desired has the frontends that a data plane should hold, as the plan asks for
// them and as each data plane lists them. What a Service says belongs in core/service,
// what a data plane does in dataplane.
package desired

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/core/service"
)

// Frontend is what a data plane is asked to hold for one VIP:port.
type Frontend struct {
	service.Key
	// What follows is as in service.Service; an empty Encapsulation is IPIP,
	// and an empty Survival the best that there is for the rest.
	Method        service.Method
	Encapsulation service.Encapsulation
	Scheduler     service.Scheduler
	RingSize      int
	Survival      service.Survival
	Affinity      time.Duration
	Allow, Deny   []netip.Prefix
	Limits        service.Limits
	// SYNProtection matters where TCP is served.
	SYNProtection service.SYNProtection
	// Backends are those to serve, sorted by address; weight 0 drains: flows
	// that are established stay, no new ones come. Never empty.
	Backends []service.Backend
}

// FrontendOf gives what a data plane is asked to hold for a frontend of s, with
// these of its backends.
func FrontendOf(s *service.Service, k service.Key, backends []service.Backend) Frontend {
	return Frontend{
		Key: k, Method: s.Method, Encapsulation: s.Encapsulation, Scheduler: s.Scheduler, RingSize: s.RingSize,
		Survival: s.Survival, Affinity: s.Affinity, Allow: s.Allow, Deny: s.Deny, Limits: s.Limits, SYNProtection: s.SYNProtection, Backends: backends,
	}
}

// Stateful says that a data plane must remember each flow of f: because its
// method translates on the way back, because its scheduler chooses anew for
// every flow, or because it was asked to.
func (f Frontend) Stateful() bool {
	return service.NeedsFlowTable(f.Method, f.Scheduler) || f.Survival == service.FlowTable || f.Affinity > 0 ||
		slices.ContainsFunc(f.Backends, func(b service.Backend) bool { return b.MaxConns > 0 })
}

// SecondChance says that packets of f name the servers that may know them.
func (f Frontend) SecondChance() bool {
	return !f.Stateful() && (f.Survival == service.SecondChance || f.Survival == "" && f.Method != service.DR)
}

// HashBy is what of a flow says its slot.
func (f Frontend) HashBy() schedule.By {
	switch {
	case f.Scheduler == service.DestinationHash:
		return schedule.ByVIP
	case f.Scheduler == service.SourceHash || f.Affinity > 0:
		return schedule.ByClient
	}
	return schedule.ByFlow
}

// Guarded says that not every packet to f is let in.
func (f Frontend) Guarded() bool {
	return len(f.Allow) > 0 || len(f.Deny) > 0 || f.Limits != service.Limits{}
}

// Protection is when f is protected from floods of SYNs; only connections of TCP are
// opened by them.
func (f Frontend) Protection() service.SYNProtection {
	if f.Protocol != service.TCP && f.Protocol != service.AnyProtocol {
		return service.SYNOff
	}
	return cmp.Or(f.SYNProtection, service.SYNOff)
}

// Same says that a data plane that holds f needs no write to hold o. Names and
// nodes are for people and make no difference; since when a backend drains is
// told when it begins to.
func (f Frontend) Same(o Frontend) bool {
	return f.Key == o.Key && f.Method == o.Method && f.Encapsulation == o.Encapsulation && f.Scheduler == o.Scheduler &&
		f.RingSize == o.RingSize && f.Survival == o.Survival && f.Affinity == o.Affinity && f.Limits == o.Limits && f.Protection() == o.Protection() &&
		slices.Equal(f.Allow, o.Allow) && slices.Equal(f.Deny, o.Deny) && slices.EqualFunc(f.Backends, o.Backends, sameBackend)
}

func sameBackend(a, b service.Backend) bool {
	return a.Addr == b.Addr && a.Weight == b.Weight && a.MaxConns == b.MaxConns && a.Since.Equal(b.Since)
}
