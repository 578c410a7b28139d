package serverhalf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/dataplane/internal/clock"
)

// nextServers are what next_servers holds, or a part of it: who a packet may be
// sent on to.
type nextServers map[serverLocalVipKey]serverNextServer

// frontend is a row's key without the server.
func (key serverLocalVipKey) frontend() serverLocalVipKey {
	key.Server, key.ServerPort = serverAddr{}, 0
	return key
}

// nextServers are all servers of the frontends that have one here.
func (d *desired) nextServers(here rows) nextServers {
	frontends := map[serverLocalVipKey]bool{}
	for key := range here {
		frontends[key.frontend()] = true
	}
	all := nextServers{}
	for _, its := range d.servers {
		for key, row := range its {
			if (key.Server == serverAddr{}) || !frontends[key.frontend()] {
				continue // the former is dr's, which a list does not name
			}
			all[key] = serverNextServer{Port: row.Port}
		}
	}
	return all
}

func (h *Half) heldNextServers() (nextServers, error) {
	held := nextServers{}
	var key serverLocalVipKey
	var server serverNextServer
	it := h.obj.NextServers.Iterate()
	for it.Next(&key, &server) {
		held[key] = server
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("list the servers of other nodes: %w", err)
	}
	return held, nil
}

// setNextServers makes the map hold these. Who is gone still takes packets of its
// flows for Linger, as it does at its own node.
func (h *Half) setNextServers(wanted nextServers) error {
	held, err := h.heldNextServers()
	if err != nil {
		return err
	}
	var errs []error
	note := func(key serverLocalVipKey, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("write server %s of VIP %s: %w", key.Server.netip(), key.Vip.netip(), err))
		}
	}
	now := clock.Now()
	for key, server := range held {
		if _, keep := wanted[key]; keep {
			continue
		}
		switch {
		case server.Left == 0:
			server.Left = uint64(now)
			note(key, h.obj.NextServers.Update(key, server, ebpf.UpdateAny))
		case server.Left < uint64(max(0, now-h.cfg.Linger)):
			note(key, h.obj.NextServers.Delete(key))
		}
	}
	for key, server := range wanted {
		if old, ok := held[key]; !ok || old != server {
			note(key, h.obj.NextServers.Update(key, server, ebpf.UpdateAny))
		}
	}
	return errors.Join(append(errs, h.obj.NextServersKnown.Set(uint32(1)))...)
}

// inheritNextServers has the programs accept any server of a list until the first
// Set, where rows are held by an agent that did not write next_servers.
func (h *Half) inheritNextServers(held rows) error {
	servers, err := h.heldNextServers()
	if err != nil || len(servers) > 0 || len(held) == 0 {
		return err
	}
	return h.obj.NextServersKnown.Set(uint32(0))
}
