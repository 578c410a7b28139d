package ipvs

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
)

// eachService calls f with every virtual service of the namespace.
func (d *DataPlane) eachService(f func(virtual, load)) error {
	question := newMessage(cmdGetService, unix.NLM_F_DUMP)
	err := d.services.ask(question, func(reply []byte) error {
		v, l, err := readService(reply)
		if err == nil {
			f(v, l)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("ipvs: read services: %w", err)
	}
	return nil
}

// eachServer calls f with every backend of a service; none if that no longer exists.
func (d *DataPlane) eachServer(id serviceID, f func(server, load)) error {
	err := d.socket.ask(aboutService(cmdGetDest, unix.NLM_F_DUMP, id), func(reply []byte) error {
		s, l, err := readServer(reply, id)
		if err == nil {
			f(s, l)
		}
		return err
	})
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("ipvs: read backends: %w", err)
	}
	return nil
}

// learn reads the state from the kernel. The only change it makes is to remove a
// predecessor's leftovers.
func (d *DataPlane) learn() error {
	if err := d.read(); err != nil || d.cleared {
		return err
	}
	err := d.clearAway()
	d.cleared = err == nil
	return err
}

func (d *DataPlane) read() error {
	d.stale = true
	var records []*record
	d.foreign = map[serviceID]bool{}
	err := d.eachService(func(v virtual, _ load) {
		if v.ours() {
			records = append(records, &record{virtual: v})
		} else {
			d.foreign[v.serviceID] = true
		}
	})
	if err != nil {
		return err
	}
	for _, r := range records {
		if err := d.eachServer(r.serviceID, func(s server, _ load) { r.servers = append(r.servers, s) }); err != nil {
			return err
		}
		slices.SortFunc(r.servers, compareServers)
	}
	if err := d.readTables(records); err != nil {
		return err
	}
	d.programmed, d.marks = map[service.Key]*record{}, map[uint32]service.Key{}
	d.nats, d.fullNATs = map[service.Key]bool{}, [2]int{}
	d.guarded = map[service.Key]bool{}
	for _, r := range records {
		k := d.tables.keyOf(r.serviceID)
		if r.flags&flagGuarded != 0 {
			r.allow, r.deny = guardIn(d.tables.guards[familyIndex(r.v6)].rules, k)
		}
		d.keep(k, r)
	}
	if err := d.learnVIPs(); err != nil {
		return err
	}
	d.stale = false
	return nil
}

// keep stores a frontend's record in place of its previous one. A mark that no packet
// gets has no key.
func (d *DataPlane) keep(k service.Key, r *record) {
	if r.mark != 0 {
		d.marks[r.mark] = k
	}
	if !k.VIP.IsValid() {
		return
	}
	d.forget(k)
	d.programmed[k] = r
	if r.flags&flagGuarded != 0 {
		d.guarded[k] = true
	}
	switch {
	case r.flags&flagFullNAT != 0:
		d.fullNATs[familyIndex(r.v6)]++
	case r.masquerades():
		d.nats[k] = true
	}
}

// forget undoes keep, except for the mark.
func (d *DataPlane) forget(k service.Key) {
	if r := d.programmed[k]; r != nil && r.flags&flagFullNAT != 0 {
		d.fullNATs[familyIndex(r.v6)]--
	}
	delete(d.nats, k)
	delete(d.guarded, k)
	delete(d.programmed, k)
}

// masquerades reports whether the record's forwarding mode is nat or fullnat.
func (r record) masquerades() bool { return len(r.servers) > 0 && r.servers[0].forward == forwardMasq }

func (d *DataPlane) learnVIPs() error {
	locals, err := d.locals()
	if err != nil {
		return err
	}
	d.vips = map[netip.Addr]*vip{}
	for k := range d.programmed {
		v := d.vipOf(k)
		v.ours, v.local = locals[k.VIP]
	}
	for a, ours := range locals {
		if ours && d.vips[a] == nil {
			d.vips[a] = &vip{local: true, ours: true}
		}
	}
	return nil
}

// clearAway removes what an interrupted call has left: routes and marked services without
// a frontend.
func (d *DataPlane) clearAway() error {
	var errs []error
	for a, v := range d.vips {
		if len(v.keys) == 0 {
			errs = append(errs, d.removeRoute(a))
			delete(d.vips, a)
		}
	}
	var orphans []message
	for mark, k := range d.marks {
		if k.VIP.IsValid() {
			continue
		}
		for _, v6 := range []bool{false, true} {
			orphans = append(orphans, aboutService(cmdDelService, 0, serviceID{v6: v6, mark: mark}))
		}
		delete(d.marks, mark)
	}
	_, err := d.socket.do(orphans) // sent for both families, of which only one exists
	return errors.Join(append(errs, err)...)
}

// List implements dataplane.DataPlane. It reads the kernel, and omits incomplete
// frontends: the next Upsert repairs them.
func (d *DataPlane) List() ([]desired.Frontend, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.learn(); err != nil {
		return nil, err
	}
	list, rules := make([]desired.Frontend, 0, len(d.programmed)), d.serving()
	for k, r := range d.programmed {
		if !d.vips[k.VIP].local || !rules.of(k, r) {
			continue
		}
		list = append(list, frontendOf(*r, k))
	}
	slices.SortFunc(list, func(a, b desired.Frontend) int { return a.Key.Compare(b.Key) })
	return list, nil
}
