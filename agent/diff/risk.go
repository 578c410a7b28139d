package diff

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
)

// ended are the states of flows that have ended, which do not count. Half of a connection that
// is finishing may still be open.
var ended = []string{"closed", "reset"}

// flowID identifies a flow.
type flowID struct {
	client, vip netip.AddrPort
	protocol    service.Protocol
}

// connections counts the connections of each frontend that changes, and those that break.
func (d *differ) connections() error {
	if len(d.changes) == 0 || d.Flows == nil {
		return nil
	}
	seen, ranges := map[flowID]bool{}, rangesOf(d.Programmed)
	for f, err := range d.Flows {
		if err != nil {
			return err
		}
		f.Client, f.VIP, f.Server = unmap(f.Client), unmap(f.VIP), unmap(f.Server)
		id := flowID{f.Client, f.VIP, f.Protocol}
		c := d.changes[find(d.Programmed, ranges, f)]
		if c == nil || c.before == nil || seen[id] || slices.Contains(ended, f.State) {
			continue
		}
		seen[id] = true
		c.Connections++
		if why := c.breaks(f); why != "" {
			if c.risks == nil {
				c.risks = map[string]int{}
			}
			c.risks[why]++
		}
	}
	return nil
}

func unmap(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// rangesOf returns the frontends with port ranges by address, sorted.
func rangesOf(all map[service.Key]desired.Frontend) map[netip.Addr][]service.Key {
	ranges := map[netip.Addr][]service.Key{}
	for k := range all {
		if k.Range() && !k.Whole() {
			ranges[k.VIP] = append(ranges[k.VIP], k)
		}
	}
	for _, keys := range ranges {
		slices.SortFunc(keys, service.Key.Compare)
	}
	return ranges
}

// find returns the key of a flow's frontend: the one with its port, else the first range that
// contains it, else the whole address.
func find(all map[service.Key]desired.Frontend, ranges map[netip.Addr][]service.Key, f dataplane.Flow) service.Key {
	k := service.Key{VIP: f.VIP.Addr(), Port: f.VIP.Port(), Protocol: f.Protocol}
	if _, exact := all[k]; exact {
		return k
	}
	for _, r := range ranges[k.VIP] {
		if r.Protocol == k.Protocol && r.Port <= k.Port && k.Port <= r.Last {
			return r
		}
	}
	return service.Key{VIP: k.VIP, Last: 65535}
}

// breaks returns why a connection would break, or "".
func (c *change) breaks(f dataplane.Flow) string {
	switch {
	case c.Change == Rejected:
		return ""
	case c.after == nil:
		return "frontend deleted"
	case !slices.ContainsFunc(c.after.Backends, func(b service.Backend) bool { return is(b.Addr, f.Server) }):
		return "backend removed"
	case !c.after.Admits(f.Client.Addr()):
		return "client is not in the source ranges"
	case way(c.before.Method) != way(c.after.Method):
		return fmt.Sprintf("forwarding mode changes from %s to %s", c.before.Method, c.after.Method)
	case c.before.Stateful() && c.after.Stateful():
		return "" // its entry in the flow table names the backend
	case c.preview.Owners == nil:
		return fmt.Sprintf("scheduler %s does not know the backends of connections that it did not open", c.after.Scheduler)
	}
	owners := c.preview.Owners(schedule.Flow{Client: f.Client, Key: service.Key{VIP: f.VIP.Addr(), Port: f.VIP.Port(), Protocol: f.Protocol}})
	if slices.ContainsFunc(owners, func(a netip.AddrPort) bool { return is(a, f.Server) }) {
		return ""
	}
	return c.moves()
}

// moves says why slots, and with them connections, get another backend.
func (c *change) moves() string {
	consistency := "no backend in the slot knows the connection"
	switch {
	case c.before.HashBy() != c.after.HashBy():
		return fmt.Sprintf("scheduler or session affinity selects slots by something else (%s, before: %s)", c.after.Scheduler, c.before.Scheduler)
	case c.after.Stateful():
		consistency = "the flow table does not have the connection yet"
	case !c.after.SecondChance():
		consistency = string(service.HashOnly)
	}
	if service.NeedsFlowTable(service.Tunnel, c.before.Scheduler) {
		return fmt.Sprintf("%s: scheduler %s has spread connections without slots", consistency, c.before.Scheduler)
	}
	return fmt.Sprintf("%s: %.1f %% of the slots move", consistency, 100*c.preview.Moved)
}

// is reports whether a backend, possibly of a port range, has an address and port.
func is(b, of netip.AddrPort) bool {
	return b.Addr().Unmap() == of.Addr().Unmap() && (b.Port() == 0 || b.Port() == of.Port())
}

// way returns what backends notice of a forwarding mode: connections survive a change to
// another one only if that is the same.
func way(m service.Method) string {
	if m == service.Tunnel || m == service.DSRNAT {
		return "dsr agent"
	}
	return string(m)
}
