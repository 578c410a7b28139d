package xdp

import (
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
	"github.com/fairlead/fairlead/dataplane/xdp/lookup"
	"github.com/fairlead/fairlead/dataplane/xdp/synflood"
)

// CookieKey is a key of SYN cookies, which load balancers may share.
type CookieKey = synflood.CookieKey

// SetCookieKeys sets the keys of cookies: the first makes them, all are accepted. Load
// balancers with the same keys accept each other's. Without any this one generates its
// own key, which outlives the process.
func (d *DataPlane) SetCookieKeys(keys ...CookieKey) error {
	return synflood.SetKeys(d.kernel.SynKeys, keys...)
}

// prepareSYN prepares the program that protects frontends.
func (d *DataPlane) prepareSYN() error {
	if err := synflood.Prepare(&d.kernel.BalancerMaps, &d.kernel.BalancerVariables, d.config.Interfaces); err != nil {
		return err
	}
	return d.program.LoadSYN()
}

// flooded are the frontends for synflood.Watch.
type flooded struct{ *DataPlane }

func (d flooded) Automatic(all []synflood.Frontend) []synflood.Frontend {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range d.programmed {
		flags := h.value.Flags
		if flags&entry.SYNAuto == 0 {
			continue
		}
		all = append(all, synflood.Frontend{
			ID: h.value.Id, UsesTable: flags&bpf.BalancerFrontendFlagsFRONTEND_STATEFUL != 0,
			Guarded: flags&bpf.BalancerFrontendFlagsFRONTEND_SYN_GUARDED != 0, Checked: flags&bpf.BalancerFrontendFlagsFRONTEND_SYN_CHECKED != 0,
		})
	}
	return all
}

func (d flooded) Openings(id uint32) (syns, packets uint64, err error) {
	total, err := lookup.FrontendCounts(d.kernel.FrontendCounts, id)
	if err != nil {
		return 0, 0, err
	}
	syn, err := synflood.Counts(d.kernel.SynCounts, id)
	answered := syn.CookiesSent + syn.ChallengesSent
	return total.Flows + answered, total.Packets + answered, err
}

func (d flooded) Table() (opening, capacity int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.flows.Opening()
}

func (d flooded) Prepare() error {
	err := d.prepareSYN()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.synError = err // for Describe
	return err
}

func (d flooded) Protect(id uint32, guarded, checked bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.numbered(id)
	if h == nil || h.value.Flags&entry.SYNAuto == 0 {
		return nil
	}
	err := d.setActive(h, guarded, checked)
	if err != nil {
		d.synError = err
	}
	return err
}

// setActive makes traffic see whether a frontend is under pressure.
func (d *DataPlane) setActive(h *programmed, guarded, checked bool) error {
	flags := h.value.Flags &^ entry.SYNActive
	if guarded {
		flags |= bpf.BalancerFrontendFlagsFRONTEND_SYN_GUARDED
	}
	if checked {
		flags |= bpf.BalancerFrontendFlagsFRONTEND_SYN_CHECKED
	}
	next := *h
	next.value.Flags = flags
	if err := d.rewrite(&next); err != nil {
		return fmt.Errorf("%s: write the pressure state: %w", h.key, err)
	}
	h.value.Flags = flags
	return nil
}

// rewrite overwrites a frontend's entry.
func (d *DataPlane) rewrite(h *programmed) error {
	v := h.value
	switch {
	case h.key.Whole():
		e := d.vips[h.key.VIP].entry()
		e.Flags, e.Turn = v.Flags, d.turnOf(h.key)
		return d.kernel.Frontends.Put(entry.ToKey(h.key), e)
	case h.key.Range():
		vip := d.vips[h.key.VIP]
		at := slices.IndexFunc(vip.ranges, func(o *programmed) bool { return o.key == h.key })
		var r bpf.BalancerPortRange
		if err := d.kernel.PortRanges.Lookup(vip.place.First+uint32(at), &r); err != nil {
			return err
		}
		r.F.Flags = v.Flags
		return d.kernel.PortRanges.Put(vip.place.First+uint32(at), r)
	}
	v.Turn = d.turnOf(h.key)
	return d.kernel.Frontends.Put(entry.ToKey(h.key), v)
}
