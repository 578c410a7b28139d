package kernel

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/enforce/wire"
)

// A whole device in a pod (host-device) is an uplink of its own, which no HTB shares:
// its slice has the device alone.

// limits are what an attachment may send and receive. The slice's max counts where
// packets leave: at the device itself, if that is the pod's.
func (s seat) limits() (sends, receives vdn.Rate) {
	sends, receives = s.slice.HostMax, s.slice.HostMax
	if most := s.slice.Max; s.slice.Mode == vdn.HostDevice && most > 0 && (sends == 0 || most < sends) {
		sends = most
	}
	return sends, receives
}

// guaranteed says why a whole device does not carry what its slice is guaranteed, in
// the device's namespace. One without a carrier carries nothing, whatever it reports.
func (s seat) guaranteed() error {
	if s.slice.Mode != vdn.HostDevice || s.slice.Guarantee == 0 {
		return nil
	}
	err := wire.Guarantees(s.link, s.slice.Guarantee)
	if err == nil || errors.Is(err, wire.ErrUnknown) && s.link.Attrs().OperState == netlink.OperDown {
		return nil
	}
	return fmt.Errorf("network %s: %w", s.slice.Name, err)
}
