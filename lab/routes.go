package lab

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/netlist"
)

// Routes formats the routes of the host's main table to a prefix, each with its metric
// and its next hops, sorted, with their weights unless all are 1: "20: 10.0.0.105
// 10.0.0.106*3".
func (h *Host) Routes(to netip.Prefix) ([]string, error) {
	family := unix.AF_INET6
	if to.Addr().Is4() {
		family = unix.AF_INET
	}
	all, err := netlist.Whole(func() ([]netlink.Route, error) {
		return h.link.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("host %s: list routes: %w", h.Name(), err)
	}
	var lines []string
	for _, r := range all {
		if r.Dst == nil || r.Dst.String() != to.String() {
			continue
		}
		var hops []string
		if r.Gw != nil {
			hops = append(hops, r.Gw.String())
		}
		for _, hop := range r.MultiPath {
			text := hop.Gw.String()
			if hop.Hops > 0 {
				text += fmt.Sprintf("*%d", hop.Hops+1)
			}
			hops = append(hops, text)
		}
		slices.Sort(hops)
		lines = append(lines, fmt.Sprintf("%d: %s", r.Priority, strings.Join(hops, " ")))
	}
	slices.Sort(lines)
	return lines, nil
}
