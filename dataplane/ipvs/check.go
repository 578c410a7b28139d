package ipvs

import (
	"fmt"
	"time"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
)

// Check returns why IPVS cannot serve a frontend, or nil. It needs no kernel.
func Check(f desired.Frontend) error { return Config{}.check(f) }

// check rejects configuration that IPVS does not support, and names the fix.
func (c Config) check(f desired.Frontend) error {
	if len(f.Backends) == 0 {
		return fmt.Errorf("%s: no backends: delete a frontend that has none", f.Key)
	}
	for _, check := range []func(desired.Frontend) string{checkWords, checkKey, checkGuard, checkScheduler, c.checkBackends} {
		if what := check(f); what != "" {
			return dataplane.Unsupported(f.Key, what)
		}
	}
	return nil
}

func checkWords(f desired.Frontend) string {
	if f.Method == service.DSRNAT {
		return "forwarding mode dsr-nat: IPVS cannot pass the VIP to the backend's node; use tunnel, which that node also decapsulates"
	}
	if _, ok := forwards[f.Method]; !ok {
		return fmt.Sprintf("forwarding mode %q", f.Method)
	}
	if f.Scheduler == service.PowerOfTwo {
		return "scheduler p2c: IPVS has it in few kernels (ip_vs_twos), with another algorithm; use lc or wlc"
	}
	if _, ok := schedulers[f.Scheduler]; !ok {
		return fmt.Sprintf("scheduler %q", f.Scheduler)
	}
	if f.Encapsulation != "" && f.Encapsulation != service.IPIP && f.Encapsulation != service.GUE {
		return fmt.Sprintf("encapsulation %q", f.Encapsulation)
	}
	if f.Affinity < 0 || f.Affinity%time.Second != 0 || f.Affinity > service.MaxAffinity {
		return fmt.Sprintf("affinity of %s: use whole seconds, at most %s", f.Affinity, service.MaxAffinity)
	}
	return ""
}

func checkKey(f desired.Frontend) string {
	if f.Port == 0 && f.Protocol != service.AnyProtocol {
		return "port 0: use a port, a port range that begins at 1 or above, or all ports of the address"
	}
	return dataplane.RefuseKey(f.Key)
}

// checkGuard rejects rate limits, and allow lists that no client can match: without the
// list, all clients would be allowed.
func checkGuard(f desired.Frontend) string {
	allow, _ := guardOf(f)
	switch {
	case len(f.Allow) > 0 && len(allow) == 0:
		return "allow has no prefix of the VIP's IP family: no client would be allowed"
	case f.Limits != service.Limits{}:
		return "rate limits: IPVS does not count packets per client; use the node's firewall, or the data plane xdp"
	case f.Protection() == service.SYNAlways:
		return "SYN protection always: IPVS does not answer SYNs itself; use auto, which relies on the backends' own SYN cookies, or the data plane xdp"
	}
	return ""
}

// checkScheduler rejects dh where it would reject clients: it keeps choosing a backend
// that accepts no flows (ip_vs_dh_schedule).
func checkScheduler(f desired.Frontend) string {
	if f.Scheduler != service.DestinationHash {
		return ""
	}
	for _, b := range f.Backends {
		switch {
		case b.Draining():
			return fmt.Sprintf("scheduler dh while %s drains: IPVS still selects the draining backend and then rejects the flow; use maglev or sh", b.Addr)
		case b.MaxConns > 0:
			return fmt.Sprintf("scheduler dh with a connection limit on %s: IPVS does not select another backend when the limit is reached; use maglev or sh", b.Addr)
		}
	}
	return ""
}

// checkBackends rejects backends that the forwarding mode cannot reach.
func (c Config) checkBackends(f desired.Frontend) string {
	v4 := f.VIP.Is4()
	for _, b := range f.Backends {
		other := b.Addr.Addr().Is4() != v4
		switch {
		case f.Range() != (b.Addr.Port() == 0):
			return fmt.Sprintf("port %d of backend %s: must be 0 if the frontend is a port range, and must not be 0 otherwise", b.Addr.Port(), b.Addr.Addr())
		case f.Method == service.DR && !f.Range() && b.Addr.Port() != f.Port:
			return fmt.Sprintf("dr to port %d of %s: forwarding mode dr does not change the port; use %d", b.Addr.Port(), b.Addr.Addr(), f.Port)
		case other && f.Method != service.Tunnel:
			return fmt.Sprintf("%s to %s, of another IP family than the VIP; use tunnel", f.Method, b.Addr.Addr())
		case other && c.Sync.Interface != "":
			return fmt.Sprintf("backend %s, of another IP family than the VIP: its connections cannot be synchronized; use a backend of the VIP's IP family", b.Addr.Addr())
		}
	}
	return ""
}
