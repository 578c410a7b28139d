package status

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/advertise"
)

// PeersView shows the routing sessions, one per line, and the drain state.
func (s Status) PeersView() View { return peering{s.complete()} }

type peering struct{ Status }

// MarshalJSON encodes only the list.
func (v peering) MarshalJSON() ([]byte, error) { return marshal(v.Peers) }

func (v peering) table(t *table) {
	if v.Drain != nil {
		t.line("%s", v.DrainWords())
	}
	overview(v).peers(t, t.wide)
}

// peers adds the table of sessions, with all counters if wide.
func (v overview) peers(t *table, wide bool) {
	head := []string{"PEER", "AS", "STATE", "SINCE", "BFD", "RECEIVED", "SENT"}
	if wide {
		head = append(head, "UPDATES IN", "UPDATES OUT", "FLAPS")
	}
	t.head(append(head, "LAST ERROR")...)
	for _, p := range v.Peers {
		name := p.Address
		if p.Name != "" && p.Name != p.Address {
			name = fmt.Sprintf("%s (%s)", p.Name, p.Address)
		}
		as := ""
		if p.AS != 0 { // otherwise a layer-2 member or a cloud
			as = fmt.Sprint(p.AS)
		}
		row := []string{name, as, p.State, Age(p.Since, v.Time), p.BFD, fmt.Sprint(p.Received), fmt.Sprint(p.Sent)}
		if wide {
			row = append(row, fmt.Sprint(p.UpdatesReceived), fmt.Sprint(p.UpdatesSent), fmt.Sprint(p.Flaps))
		}
		t.row(append(row, p.LastError)...)
	}
}

// OnlyPeers keeps the given peers, by name or address; all of them if none are given. An
// argument that matches none is an error.
func (s Status) OnlyPeers(names ...string) (Status, error) {
	if len(names) == 0 {
		return s, nil
	}
	is := func(n string) func(advertise.Peer) bool {
		return func(p advertise.Peer) bool { return n == p.Name || n == p.Address }
	}
	for _, n := range names {
		if !slices.ContainsFunc(s.Peers, is(n)) {
			return s, fmt.Errorf("unknown peer %s: see fairlead get peers", n)
		}
	}
	s.Peers = slices.DeleteFunc(slices.Clone(s.Peers), func(p advertise.Peer) bool {
		return !slices.ContainsFunc(names, func(n string) bool { return is(n)(p) })
	})
	return s, nil
}

// peersDown returns "10.0.0.9 (active: no route to 10.0.0.9)" for each peer that is not
// established, and the number of those that are.
func (s Status) peersDown() (down []string, up int) {
	for _, p := range s.Peers {
		if p.State == advertise.Established {
			up++
			continue
		}
		down = append(down, fmt.Sprintf("%s (%s)", p.Address, strings.TrimSuffix(p.State+": "+p.LastError, ": ")))
	}
	return down, up
}
