package kernel

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/enforce/wire"
)

// An entire NIC in a pod (host-device) is an uplink that HTB does not share: its slice uses
// the device exclusively.

// limits returns the rates that an attachment may send and receive. The slice's max applies
// where packets leave the node: at the device itself, if the pod has it.
func (s seat) limits() (sends, receives vdn.Rate) {
	sends, receives = s.slice.MaxRatePerHost, s.slice.MaxRatePerHost
	if most := s.slice.MaxRate; s.slice.Mode == vdn.HostDevice && most > 0 && (sends == 0 || most < sends) {
		sends = most
	}
	return sends, receives
}

// guaranteed returns an error if a host device is slower than its slice's guarantee,
// checked in the device's namespace. A device without a carrier carries nothing, whatever
// it reports.
func (s seat) guaranteed() error {
	if s.slice.Mode != vdn.HostDevice || s.slice.GuaranteedRate == 0 {
		return nil
	}
	err := wire.Guarantees(s.link, s.slice.GuaranteedRate)
	if err == nil || errors.Is(err, wire.ErrUnknown) && s.link.Attrs().OperState == netlink.OperDown {
		return nil
	}
	return fmt.Errorf("network %s: %w", s.slice.Name, err)
}
