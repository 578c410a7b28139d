package ipvs

import (
	"fmt"
	"time"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
)

// check rejects what IPVS does not support, with the fix.
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
		return "method dsr-nat: IPVS cannot tell the server's node which VIP to restore; want method tunnel, which the same node ends"
	}
	if _, ok := forwards[f.Method]; !ok {
		return fmt.Sprintf("forwarding mode %q", f.Method)
	}
	if f.Scheduler == service.PowerOfTwo {
		return "scheduler p2c: few kernels' IPVS has one (ip_vs_twos), and another one; want lc or wlc"
	}
	if _, ok := schedulers[f.Scheduler]; !ok {
		return fmt.Sprintf("scheduler %q", f.Scheduler)
	}
	if f.Encapsulation != "" && f.Encapsulation != service.IPIP && f.Encapsulation != service.GUE {
		return fmt.Sprintf("encapsulation %q", f.Encapsulation)
	}
	if f.Affinity < 0 || f.Affinity%time.Second != 0 || f.Affinity > service.MaxAffinity {
		return fmt.Sprintf("affinity of %s: want whole seconds, at most %s", f.Affinity, service.MaxAffinity)
	}
	return ""
}

func checkKey(f desired.Frontend) string {
	if f.Port == 0 && f.Protocol != service.AnyProtocol {
		return "port 0: want a port, a range from 1 on, or the whole address"
	}
	return dataplane.RefuseKey(f.Key)
}

// checkGuard rejects rate limits, and allow lists that no client can match: without the
// list, all clients would be allowed.
func checkGuard(f desired.Frontend) string {
	allow, _ := guardOf(f)
	switch {
	case len(f.Allow) > 0 && len(allow) == 0:
		return "allow has no prefix of the VIP's family: it would serve nobody"
	case f.Limits != service.Limits{}:
		return "limits: IPVS counts no client's packets; want the node's firewall, or the data plane xdp"
	case f.Protection() == service.SYNAlways:
		return "SYN protection always: IPVS answers no SYNs itself; want auto, with which the backends' own SYN cookies protect them, or the data plane xdp"
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
			return fmt.Sprintf("scheduler dh while %s drains: IPVS would still choose it, and then nobody; want maglev or sh", b.Addr)
		case b.MaxConns > 0:
			return fmt.Sprintf("scheduler dh with a limit of connections at %s: IPVS would look for no other server; want maglev or sh", b.Addr)
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
			return fmt.Sprintf("port %d of server %s: want 0 for a range of ports, and only for one", b.Addr.Port(), b.Addr.Addr())
		case f.Method == service.DR && !f.Range() && b.Addr.Port() != f.Port:
			return fmt.Sprintf("dr to port %d of %s: it leaves the port as it is; want %d", b.Addr.Port(), b.Addr.Addr(), f.Port)
		case other && f.Method != service.Tunnel:
			return fmt.Sprintf("%s to %s, of another family than the VIP; want method tunnel", f.Method, b.Addr.Addr())
		case other && c.Sync.Interface != "":
			return fmt.Sprintf("server %s, of another family than the VIP: connections to it cannot be synchronised; want a server of the VIP's", b.Addr.Addr())
		}
	}
	return ""
}
