package entry

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
)

// Unsupported returns what of a frontend with backends the program does not support, or an
// empty string. own4 and own6 are the load balancer's own addresses, if it has them.
func Unsupported(f desired.Frontend, own4, own6 netip.Addr) string {
	for _, check := range []func(desired.Frontend) string{checkNames, checkKey, checkTimes} {
		if what := check(f); what != "" {
			return what
		}
	}
	return checkBackends(f, own4, own6)
}

// checkNames rejects names without a number in C.
func checkNames(f desired.Frontend) string {
	if _, ok := methods[f.Method]; !ok {
		return fmt.Sprintf("forwarding mode %q", f.Method)
	}
	if _, ok := schedulers[f.Scheduler]; !ok {
		return fmt.Sprintf("scheduler %q", f.Scheduler)
	}
	if _, ok := encapsulations[f.Encapsulation]; !ok && f.Encapsulation != "" {
		return fmt.Sprintf("encapsulation %q", f.Encapsulation)
	}
	if _, ok := survivals[f.Survival]; !ok && f.Survival != "" {
		return fmt.Sprintf("connection consistency %q", f.Survival)
	}
	if f.SYNProtection != "" && !slices.Contains(service.SYNProtections, f.SYNProtection) {
		return fmt.Sprintf("SYN protection %q", f.SYNProtection)
	}
	return ""
}

func checkKey(f desired.Frontend) string { return dataplane.RefuseKey(f.Key) }

func checkTimes(f desired.Frontend) string {
	if f.Affinity < 0 || f.Affinity%time.Second != 0 || f.Affinity/time.Second > math.MaxUint32 {
		return fmt.Sprintf("affinity of %s: use whole seconds", f.Affinity)
	}
	return ""
}

// checkBackends rejects backends that the forwarding mode cannot reach.
func checkBackends(f desired.Frontend, own4, own6 netip.Addr) string {
	v4 := f.Backends[0].Addr.Addr().Unmap().Is4()
	keeps := f.Backends[0].Addr.Port() == 0
	for _, b := range f.Backends {
		if b.Addr.Addr().Unmap().Is4() != v4 {
			return "backends of both IP families: use one family per frontend"
		}
		if (b.Addr.Port() == 0) != keeps {
			return "only some backends have a port: set the port of all of them, or of none for a port range"
		}
		if f.Method == service.DR && !keeps && (f.Range() || b.Addr.Port() != f.Port) {
			return fmt.Sprintf("dr to port %d of %s: forwarding mode dr does not change the port", b.Addr.Port(), b.Addr.Addr())
		}
	}
	if keeps && !f.Range() {
		return "backends without a port: only a port range may have them"
	}
	if f.Method != service.Tunnel && f.VIP.Unmap().Is4() != v4 {
		return fmt.Sprintf("%s to backends of another IP family than the VIP: use tunnel", f.Method)
	}
	return checkSource(f, v4, own4, own6)
}

// checkSource rejects forwarding modes that need an own address if none is configured.
func checkSource(f desired.Frontend, v4 bool, own4, own6 netip.Addr) string {
	source, family := own4, "IPv4"
	if !v4 {
		source, family = own6, "IPv6"
	}
	if needs := f.Method == service.Tunnel || f.Method == service.FullNAT; needs && !source.IsValid() {
		return fmt.Sprintf("%s to %s: the first --interface has no %s address to use as source", f.Method, f.Backends[0].Addr, family)
	}
	return ""
}
