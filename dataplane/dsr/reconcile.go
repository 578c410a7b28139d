package dsr

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// reconcile programs the desired state into the kernel: rows for the local backends, and
// programs where the routes lead to them. It may run at any time and repeatedly. Before
// the first Set it leaves the entries unchanged.
func (h *Agent) reconcile() error {
	if err := h.writeBalancers(); err != nil || h.desired == nil {
		return err
	}
	programmed, err := h.rows()
	if err != nil {
		return err
	}
	view, err := h.routes.look(h.cfg.Uplinks)
	if err != nil {
		return err
	}
	found, failed := h.locate(view, programmed)
	wanted := h.wanted(view, found)
	at := points(found)
	h.keepUnknown(wanted, at, programmed, found)
	entrances(at, view, wanted)
	entrances(at, view, programmed)
	// First: once the row exists, packets must be looked up by their VIP.
	if err := h.serveDR(wanted, programmed); err != nil {
		return err
	}
	return errors.Join(failed, h.setNextServers(h.desired.nextServers(wanted)), h.change(programmed, wanted), h.hook.Keep(at), h.sweep(programmed, wanted))
}

// wanted are the rows of the local backends.
func (h *Agent) wanted(view *view, found map[netip.Addr]where) rows {
	wanted := rows{}
	for _, server := range slices.SortedFunc(maps.Keys(h.desired.servers), netip.Addr.Compare) {
		place := found[server].place
		if place == elsewhere {
			continue
		}
		for key, row := range h.desired.servers[server] {
			row.Place = place
			if _, holds := view.Holders[key.Vip.netip()]; holds && place == onHost && row.Method == methodDR {
				row.Deliver = key.Vip
			}
			if other, ok := wanted[key]; ok && other.Server != row.Server {
				h.abroad[server] = fmt.Sprintf("%s serves the same VIP on this node, and dr cannot distinguish two backends of one VIP on a node: use tunnel or dsr-nat",
					other.Server.netip())
				continue
			}
			wanted[key] = row
		}
	}
	return wanted
}

// entrances adds the programs at the node's ingress and egress that backends in pods
// need: the one that passes packets to their devices, and the one for the ICMP errors
// that the kernel sends to clients about packets to them.
func entrances(at map[point]bool, view *view, rows rows) {
	pods, direct := false, false
	for _, row := range rows {
		pods = pods || row.Place == inPod
		direct = direct || row.Place == inPod && row.Method != methodTunnel
	}
	for _, d := range view.Entrances() {
		if direct {
			at[point{Device: d, Program: dsrProgToHost}] = true
		}
		if pods && !at[point{Device: d, Program: dsrProgFromHost}] {
			at[point{Device: d, Program: dsrProgFromNode}] = true
		}
	}
}

// serveDR informs the programs whether there is a backend with dr.
func (h *Agent) serveDR(sets ...rows) error {
	served := uint32(0)
	for _, rows := range sets {
		for _, row := range rows {
			if row.Method == methodDR {
				served = 1
			}
		}
	}
	return h.obj.DrServed.Set(served)
}

// locate finds each backend that is desired or still programmed, and records why desired
// ones are not here. The error lists those that the kernel failed to locate.
func (h *Agent) locate(view *view, programmed rows) (found map[netip.Addr]where, failed error) {
	var errs []error
	found, h.abroad = map[netip.Addr]where{}, map[netip.Addr]string{}
	for server := range h.desired.servers {
		found[server] = where{}
	}
	for _, row := range programmed {
		found[row.Server.netip()] = where{}
	}
	for server := range found {
		w, err := h.routes.locate(view, server)
		if err != nil {
			w = where{unknown: true, why: err.Error()}
		}
		if err != nil && h.desired.servers[server] != nil {
			errs = append(errs, err)
		}
		found[server] = w
		if w.place == elsewhere && h.desired.servers[server] != nil {
			h.abroad[server] = w.why
		}
	}
	return found, errors.Join(errs...)
}

// keepUnknown keeps the programmed rows of desired backends with unknown location, and
// all attached programs: some may be for those.
func (h *Agent) keepUnknown(wanted rows, at map[point]bool, programmed rows, found map[netip.Addr]where) {
	any := false
	for key, row := range programmed {
		server := row.Server.netip()
		if !found[server].unknown {
			continue
		}
		any = true
		_, desired := h.desired.servers[server][key]
		if _, taken := wanted[key]; desired && !taken {
			wanted[key] = row
		}
	}
	if any {
		for _, p := range h.hook.Points() {
			at[p] = true
		}
	}
}

// points returns where programs must be attached for backends in these places.
func points(found map[netip.Addr]where) map[point]bool {
	wanted := map[point]bool{}
	for _, w := range found {
		toward, back := point{Program: dsrProgToServer}, point{Program: dsrProgFromServer}
		if w.place == onHost {
			toward, back = point{Program: dsrProgToHost}, point{Program: dsrProgFromHost}
		}
		for _, d := range w.devices {
			toward.Device, back.Device = d, d
			wanted[toward], wanted[back] = true, true
		}
	}
	return wanted
}
