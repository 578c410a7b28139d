package dsr

import (
	"errors"
	"time"

	"github.com/fairlead/fairlead/dataplane/internal/clock"
	"github.com/fairlead/fairlead/internal/bpfmap"
)

// nextServers is the content of next_servers, or a part of it: the backends to which a
// packet may be forwarded.
type nextServers map[dsrLocalVipKey]dsrNextServer

// frontend is a row's key without the backend.
func (key dsrLocalVipKey) frontend() dsrLocalVipKey {
	key.Server, key.ServerPort = dsrAddr{}, 0
	return key
}

// nextServers are all backends of the frontends that have one here.
func (d *rowSet) nextServers(here rows) nextServers {
	frontends := map[dsrLocalVipKey]bool{}
	for key := range here {
		frontends[key.frontend()] = true
	}
	all := nextServers{}
	for _, its := range d.servers {
		for key, row := range its {
			if (key.Server == dsrAddr{}) || !frontends[key.frontend()] {
				continue // the former is for dr, and not in any list
			}
			all[key] = dsrNextServer{Port: row.Port}
		}
	}
	return all
}

// linger adds to wanted those in programmed that have left: such a backend accepts packets of
// its flows for this long, as on its own node. now is CLOCK_MONOTONIC.
func (wanted nextServers) linger(programmed nextServers, now, linger time.Duration) {
	for key, server := range programmed {
		if _, stays := wanted[key]; stays {
			continue
		}
		if server.Left == 0 {
			server.Left = uint64(now)
		}
		if server.Left >= uint64(max(0, now-linger)) {
			wanted[key] = server
		}
	}
}

// setNextServers updates the map to these, including those that have left recently.
func (h *Agent) setNextServers(wanted nextServers) error {
	programmed, err := bpfmap.Read[dsrLocalVipKey, dsrNextServer](h.obj.NextServers)
	if err != nil {
		return err
	}
	wanted.linger(programmed, clock.Now(), h.cfg.Linger)
	return errors.Join(bpfmap.Change(h.obj.NextServers, programmed, wanted), h.obj.NextServersKnown.Set(uint32(1)))
}

// inheritNextServers makes the programs accept any backend of a list until the first Set,
// if the rows are from an agent that did not write next_servers.
func (h *Agent) inheritNextServers(programmed rows) error {
	servers, err := bpfmap.Read[dsrLocalVipKey, dsrNextServer](h.obj.NextServers)
	if err != nil || len(servers) > 0 || len(programmed) == 0 {
		return err
	}
	return h.obj.NextServersKnown.Set(uint32(0))
}
