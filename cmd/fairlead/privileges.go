package main

import (
	"log/slog"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/internal/bpffs"
	"github.com/fairlead/fairlead/internal/privilege"
	"github.com/fairlead/fairlead/internal/privilege/held"
)

// lacks logs the capabilities that these roles need and the process lacks, and returns
// the same as an error. The process starts anyway, because not everything needs all of
// them.
func lacks(roles ...string) error {
	err := held.Lacks(roles...)
	if err != nil {
		slog.Warn("a capability is missing", "error", err)
	}
	return err
}

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

// routerPrivileges does the same for a router.
func routerPrivileges(r *config.ResolvedRouter) []string {
	if len(r.Router.Balancers) > 0 {
		return []string{privilege.Router, privilege.RouterListens}
	}
	return []string{privilege.Router}
}

// cleanupPrivileges does the same for a cleanup below a BPF file system.
func cleanupPrivileges(folder string) []string {
	if _, err := os.Stat(filepath.Join(folder, config.VDNPins)); err != nil {
		return []string{privilege.Cleanup}
	}
	return []string{privilege.Cleanup, privilege.CleanupVDN}
}
