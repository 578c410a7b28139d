package config

import (
	"net/netip"
	"time"
)

// ServiceProxy contains the additional settings of the role proxy.
type ServiceProxy struct {
	// Cgroup is the directory of the cgroup (v2) whose sockets are served; empty: the
	// root cgroup.
	Cgroup string
	// NodePortAddresses are prefixes: node ports are served on the node's addresses in
	// them. Empty or "primary": on the addresses of the Node in Kubernetes.
	NodePortAddresses []string
	// Uplinks are the interfaces on which packets arrive from outside the node; empty:
	// those that the node's routes use.
	Uplinks []string
	// Health is the listen address of kube-proxy's /healthz; empty: disabled.
	Health string
	// Window is how long consecutive changes are batched, and MaxDelay the maximum time
	// that a change waits.
	Window, MaxDelay time.Duration
	// MaxServiceFrontends and MaxServiceTargets limit frontends and their endpoints; 0:
	// the data plane's defaults.
	MaxServiceFrontends, MaxServiceTargets int
}

// primary selects the node's own addresses, as in kube-proxy.
const primary = "primary"

// resolveProxy validates the settings of the role proxy.
func (r *Resolved) resolveProxy(p *parser) {
	if !r.Agent.Kubernetes {
		p.refuse("role", "%s requires --kubernetes", Proxy)
	}
	for _, text := range r.NodePortAddresses {
		prefix, err := netip.ParsePrefix(text)
		switch {
		case text == primary && len(r.NodePortAddresses) == 1:
			return
		case text == primary:
			p.refuse("node-port-addresses", "%s cannot be combined with prefixes", primary)
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
