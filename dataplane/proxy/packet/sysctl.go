package packet

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/dataplane/internal/devices"
	"github.com/fairlead/fairlead/internal/sysctl"
)

const forward = "packets to a service are forwarded to its targets, and the kernel tells programs routes only where it forwards"

// prepare has the node forward packets. A host that takes its default route from
// router advertisements would forget it by that (accept_ra 1): it goes on.
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
				all = append(all, sysctl.Setting{Path: path, Value: "2", Why: "routers' advertisements are ignored by who forwards"})
			}
		}
	}
	all = append(all, sysctl.Setting{Path: "ipv6/conf/all/forwarding", Value: "1", Why: forward})
	return sysctl.SetAll(all)
}

// loosen has devices take packets whose source has its route by another device,
// where they are strict about that (rp_filter 1): a pod's answer to the node
// itself comes in as the service's, whose route leads to the network. The
// larger of the two settings holds.
func loosen(view *devices.View, at map[int]place) error {
	all := sysctl.Read("ipv4/conf/all/rp_filter")
	var errs []error
	for index := range at {
		path := filepath.Join("ipv4/conf", view.Devices[index].Name, "rp_filter")
		own := sysctl.Read(path)
		if max(own, all) != "1" || own == "" { // own: the device is gone
			continue
		}
		err := sysctl.Setting{Path: path, Value: "2", Why: "answers of pods to this node come in as those of services"}.Set()
		if !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
