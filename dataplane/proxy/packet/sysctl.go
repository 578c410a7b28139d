package packet

import (
	"path/filepath"

	"github.com/fairlead/fairlead/dataplane/internal/devices"
	"github.com/fairlead/fairlead/internal/sysctl"
)

const forward = "packets to a service are forwarded to its endpoints, and programs can look up routes only if the kernel forwards"

// prepare enables forwarding on the node. That would make a host drop its default route
// from router advertisements (accept_ra 1), so it is made to keep it.
func (h *Half) prepare() error {
	all := []sysctl.Setting{{Path: "ipv4/ip_forward", Value: "1", Why: forward}}
	if sysctl.Read("ipv6/conf/all/forwarding") == "0" {
		view, err := devices.Look(h.nl, h.cfg.Uplinks)
		if err != nil {
			return err
		}
		for _, d := range view.Devices {
			path := filepath.Join("ipv6/conf", d.Name, "accept_ra")
			if sysctl.Read(path) == "1" {
				all = append(all, sysctl.Setting{Path: path, Value: "2", Why: "a forwarding host ignores router advertisements otherwise"})
			}
		}
	}
	all = append(all, sysctl.Setting{Path: "ipv6/conf/all/forwarding", Value: "1", Why: forward})
	all = append(all, sysctl.Setting{Path: "ipv4/conf/lo/accept_local", Value: "1", Why: "the node's own packets that exceed a tunnel's MTU are fragmented through lo"})
	return sysctl.SetAll(all)
}
