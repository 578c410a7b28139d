package config

import (
	"net/netip"
	"time"
)

// ServiceProxy is what the role proxy has beside.
type ServiceProxy struct {
	// Cgroup is the folder of the cgroup (v2) whose sockets are served; empty for
	// the root of all.
	Cgroup string
	// NodePortAddresses are prefixes: node ports are served on the node's addresses
	// in them. Empty, or "primary": on the addresses that the Node has in Kubernetes.
	NodePortAddresses []string
	// Uplinks are the interfaces by which packets come from outside the node;
	// empty for those that lead out by the node's routes.
	Uplinks []string
	// Health is where kube-proxy's /healthz is answered; empty for nowhere.
	Health string
	// Window is how long changes are gathered while one follows the other, and
	// MaxDelay how long one of them waits at most.
	Window, MaxDelay time.Duration
	// MaxServiceFrontends and MaxServiceTargets are for how many frontends and
	// endpoints of them there is room; 0 for the data plane's own defaults.
	MaxServiceFrontends, MaxServiceTargets int
}

// primary stands for the node's own addresses, as kube-proxy has it.
const primary = "primary"

// resolveProxy sees to what the role proxy needs.
func (r *Resolved) resolveProxy(p *parser) {
	if !r.Agent.Kubernetes {
		p.refuse("role", "%s serves a cluster's Services: it needs --kubernetes", Proxy)
	}
	for _, text := range r.NodePortAddresses {
		prefix, err := netip.ParsePrefix(text)
		switch {
		case text == primary && len(r.NodePortAddresses) == 1:
			return
		case text == primary:
			p.refuse("node-port-addresses", "%s stands alone", primary)
		case err != nil:
			p.refuse("node-port-addresses", "%q is not a prefix, as in 10.0.0.0/8, nor %s", text, primary)
		default:
			r.NodePortPrefixes = append(r.NodePortPrefixes, prefix.Masked())
		}
	}
	if r.Health != "" {
		if _, err := netip.ParseAddrPort(r.Health); err != nil {
			p.refuse("health-address", "%q is not an address with a port, as in 0.0.0.0:10256", r.Health)
		}
	}
	for flag, n := range map[string]int{"proxy-max-frontends": r.MaxServiceFrontends, "proxy-max-targets": r.MaxServiceTargets} {
		if n < 0 || n > 1<<30 {
			p.refuse(flag, "%d is not between 0, for the default, and %d", n, 1<<30)
		}
	}
	if r.Window < 0 || r.Window > 10*time.Second {
		p.refuse("sync-min-period", "%s is not between 0 and 10s", r.Window)
	}
	if r.MaxDelay < r.Window || r.MaxDelay > time.Minute {
		p.refuse("sync-max-delay", "%s is not between --sync-min-period (%s) and 1m", r.MaxDelay, r.Window)
	}
}
