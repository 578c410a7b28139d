package agent

import (
	"path/filepath"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/internal/bpffs"
	"github.com/fairlead/fairlead/internal/privilege"
)

// agentPrivileges returns an agent's roles as named in package privilege.
func agentPrivileges(r *config.Resolved) (names []string) {
	switch {
	case r.Balancer && r.DataPlane == "ipvs":
		names = append(names, privilege.BalancerIPVS)
	case r.Balancer:
		names = append(names, privilege.Balancer, privilege.Takeover)
	}
	if r.Balancer && len(r.Agent.Layer2.Interfaces) > 0 {
		names = append(names, privilege.BalancerLayer2)
	}
	if r.DSR {
		names = append(names, privilege.DSR)
	}
	if r.Proxy {
		names = append(names, privilege.Proxy)
	}
	// The file system that an agent mounted is further down: each role has its own
	// directory.
	if mounted, err := bpffs.Mounted(filepath.Join(r.BPFFS, "fairlead", r.Roles[0])); err == nil && !mounted {
		names = append(names, privilege.OwnBPFFS)
	}
	return names
}
