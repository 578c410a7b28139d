package serverhalf

import (
	"errors"
	"net/netip"
)

// reconcile makes the kernel hold what is desired: rows for the servers that
// are here, programs where the routes lead to them. It may run at any time,
// again and again; before the first Set it does nothing.
func (h *Half) reconcile() error {
	if h.desired == nil {
		return nil
	}
	held, err := h.rows()
	if err != nil {
		return err
	}
	view, err := h.routes.look(h.cfg.Uplinks)
	if err != nil {
		return err
	}
	found, abroad, err := h.locate(view, held)
	if err != nil {
		return err
	}
	h.abroad = abroad
	wanted := map[serverLocalVipKey]serverLocalVip{}
	for server, rows := range h.desired.servers {
		if place := found[server].place; place != elsewhere {
			for key, row := range rows {
				row.Place = place
				wanted[key] = row
			}
		}
	}
	at := points(found)
	if shortcuts(wanted) || shortcuts(held) {
		for _, d := range view.entrances() {
			at[point{ifindex: d, prog: serverProgToHost, ingress: true}] = true
		}
	}
	return errors.Join(h.change(held, wanted), h.hook.keep(at), h.sweep(held))
}

// shortcuts tells whether there are servers in pods whose packets to_host hands
// to their devices.
func shortcuts(rows map[serverLocalVipKey]serverLocalVip) bool {
	for _, row := range rows {
		if row.Method == methodDirectNAT && row.Place == inPod {
			return true
		}
	}
	return false
}

// locate says where each server is that is desired or still held, and of those
// desired that are not here why not.
func (h *Half) locate(view *view, held map[serverLocalVipKey]serverLocalVip) (found map[netip.Addr]where, abroad map[netip.Addr]string, err error) {
	found, abroad = map[netip.Addr]where{}, map[netip.Addr]string{}
	for server := range h.desired.servers {
		found[server] = where{}
	}
	for key := range held {
		found[key.Server.netip()] = where{}
	}
	for server := range found {
		w, err := h.routes.locate(view, server)
		if err != nil {
			return nil, nil, err
		}
		found[server] = w
		if w.place == elsewhere && h.desired.servers[server] != nil {
			abroad[server] = w.why
		}
	}
	return found, abroad, nil
}

// points says where programs must be attached for servers in these places.
func points(found map[netip.Addr]where) map[point]bool {
	wanted := map[point]bool{}
	for _, w := range found {
		toward, back := point{prog: serverProgToServer}, point{prog: serverProgFromServer}
		toward.ingress, back.ingress = false, true
		if w.place == onHost {
			toward, back = point{prog: serverProgToHost, ingress: true}, point{prog: serverProgFromHost}
		}
		for _, d := range w.devices {
			toward.ifindex, back.ifindex = d, d
			wanted[toward], wanted[back] = true, true
		}
	}
	return wanted
}
