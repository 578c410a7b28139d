package xdp

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/internal/clock"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
)

// CookieKey is a key of cookies, which load balancers may share.
type CookieKey [16]byte

// SetCookieKeys sets the keys of cookies: the first makes them, all are accepted. Load
// balancers with the same keys accept each other's. Without any this one generates its
// own key, which outlives the process.
func (d *DataPlane) SetCookieKeys(keys ...CookieKey) error {
	var v bpf.BalancerSynKeys
	if len(keys) > len(v.Key) {
		return fmt.Errorf("xdp: %d keys of cookies: at most %d fit", len(keys), len(v.Key))
	}
	if len(keys) == 0 {
		var own CookieKey
		rand.Read(own[:]) // it never fails
		keys = []CookieKey{own}
	}
	for i, k := range keys {
		v.Key[i].K0, v.Key[i].K1 = binary.LittleEndian.Uint64(k[:8]), binary.LittleEndian.Uint64(k[8:])
	}
	v.N = uint32(len(keys))
	if err := d.kernel.SynKeys.Put(uint32(0), v); err != nil {
		return fmt.Errorf("xdp: write the keys of cookies: %w", err)
	}
	return nil
}

// makeCookieKeys ensures that there are keys.
func (d *DataPlane) makeCookieKeys() error {
	var v bpf.BalancerSynKeys
	if err := d.kernel.SynKeys.Lookup(uint32(0), &v); err != nil {
		return fmt.Errorf("xdp: read the keys of cookies: %w", err)
	}
	if v.N > 0 {
		return nil
	}
	return d.SetCookieKeys()
}

// prepareSYN prepares the program that protects frontends.
func (d *DataPlane) prepareSYN() error {
	if err := errors.Join(d.makeCookieKeys(), d.putSYNSettings()); err != nil {
		return err
	}
	return d.program.LoadSYN()
}

// wallTolerance is the permitted error of the cookies' clock: small compared with the 34
// seconds of a slot.
const wallTolerance = 100 * time.Millisecond

// putSYNSettings sets the offset of the wall clock from the programs' clock, and the
// segment sizes.
func (d *DataPlane) putSYNSettings() error {
	var v bpf.BalancerSynSettings
	if err := d.kernel.SynSet.Get(&v); err != nil {
		return fmt.Errorf("xdp: read settings: %w", err)
	}
	next := d.config.synSettings(v)
	if next == v {
		return nil
	}
	if err := d.kernel.SynSet.Set(next); err != nil {
		return fmt.Errorf("xdp: write settings: %w", err)
	}
	return nil
}

// presetSYN sets them in an object that replaces one with protected frontends, so that no
// packet is processed with others.
func (d *DataPlane) presetSYN(spec *ebpf.CollectionSpec) error {
	if !d.program.HasSYN() {
		return nil
	}
	if err := spec.Variables[bpf.BalancerVarSynSet].Set(d.config.synSettings(bpf.BalancerSynSettings{})); err != nil {
		return fmt.Errorf("xdp: settings: %w", err)
	}
	return nil
}

// synSettings returns v with current values.
func (c Config) synSettings(v bpf.BalancerSynSettings) bpf.BalancerSynSettings {
	v.Mss4, v.Mss6 = c.segments()
	v.Active = 1
	wall := time.Duration(time.Now().UnixNano()) - clock.Now()
	if off := wall - time.Duration(v.Wall); off > wallTolerance || off < -wallTolerance {
		v.Wall = uint64(wall)
	}
	return v
}

// segments returns the segment sizes that fit all interfaces.
func (c Config) segments() (v4, v6 uint16) {
	const headers4, headers6, least = 40, 60, 576
	mtu := 1500
	for _, name := range c.Interfaces {
		if nic, err := netlink.LinkByName(name); err == nil {
			mtu = min(mtu, max(nic.Attrs().MTU, least))
		}
	}
	return uint16(mtu - headers4), uint16(mtu - headers6)
}

const (
	// pressureEvery is the interval of checks for pressure.
	pressureEvery = 250 * time.Millisecond
	// forgetAfter is how long a frontend without new connections is remembered: at
	// service.LeastSYNThreshold it is noted more than twice in that time.
	forgetAfter = time.Minute
)

// synWatch checks for pressure, in one goroutine.
type synWatch struct {
	d     *DataPlane
	hot   []uint32 // by CPU: number of notes already read
	state map[uint32]*watched
	table bool
}

// watched is a frontend being checked.
type watched struct {
	pressure
	before sampled
}

// sampled are counters at one time.
type sampled struct {
	at            time.Duration
	syns, packets uint64
}

// watchSYN checks for pressure until the data plane is closed.
func (d *DataPlane) watchSYN() {
	w := &synWatch{d: d, state: map[uint32]*watched{}}
	d.synStop, d.synDone = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(d.synDone)
		tick := time.NewTicker(pressureEvery)
		defer tick.Stop()
		for {
			select {
			case <-d.synStop:
				return
			case <-tick.C:
				w.look(clock.Now())
			}
		}
	}()
}

func (d *DataPlane) stopWatchingSYN() {
	if d.synStop == nil {
		return
	}
	close(d.synStop)
	<-d.synDone
	d.synStop = nil
}

// look checks the frontends that may be under pressure, and changes those that are.
func (w *synWatch) look(now time.Duration) {
	suspects := w.suspects()
	if len(suspects) == 0 {
		return
	}
	if err := w.d.prepareSYN(); err != nil {
		w.d.noteSYN(err)
		return
	}
	w.d.noteSYN(nil)
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	for _, h := range w.d.programmed {
		if id := h.value.Id; suspects[id] && h.value.Flags&entry.SYNAuto != 0 {
			w.lookAt(h, now)
		}
	}
	maps.DeleteFunc(w.state, func(_ uint32, s *watched) bool { return s.idle() && now-s.before.at > forgetAfter })
}

// suspects are the frontends, by number, with many new connections since the last check,
// and those checked then.
func (w *synWatch) suspects() map[uint32]bool {
	found := map[uint32]bool{}
	for id, s := range w.state {
		if !s.idle() {
			found[id] = true
		}
	}
	var perCPU []bpf.BalancerSynHot
	if w.d.kernel.SynHot.Lookup(uint32(0), &perCPU) != nil {
		return nil // closed
	}
	if w.hot == nil {
		w.hot = make([]uint32, len(perCPU))
		for i := range perCPU {
			w.hot[i] = perCPU[i].N
		}
	}
	for i, hot := range perCPU {
		n := min(hot.N-w.hot[i], uint32(len(hot.Frontend)))
		for j := range n {
			found[hot.Frontend[(hot.N-1-j)%uint32(len(hot.Frontend))]] = true
		}
		w.hot[i] = hot.N
	}
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	was := w.table
	opening, capacity := w.d.flows.Opening()
	w.table = tableUnderPressure(was, opening, capacity)
	for _, h := range w.d.programmed {
		// Left under pressure by a predecessor, or using a table under pressure.
		if h.value.Flags&entry.SYNAuto != 0 && (h.value.Flags&entry.SYNActive != 0 || w.table && usesTable(h)) {
			found[h.value.Id] = true
		}
	}
	return found
}

func usesTable(h *programmed) bool {
	return h.value.Flags&bpf.BalancerFrontendFlagsFRONTEND_STATEFUL != 0
}

// lookAt compares a frontend's counters with those of the last check.
func (w *synWatch) lookAt(h *programmed, now time.Duration) {
	s := w.state[h.value.Id]
	sample, err := w.d.sample(h.value.Id, now)
	if err != nil {
		return // closed
	}
	if s == nil {
		active := h.value.Flags & entry.SYNActive
		s = &watched{pressure: pressure{
			guarded: active&bpf.BalancerFrontendFlagsFRONTEND_SYN_GUARDED != 0, checked: active != 0,
		}}
		w.state[h.value.Id], s.before = s, sample
		if !w.table {
			return
		}
	}
	seen := openings{syns: sample.syns - s.before.syns, packets: sample.packets - s.before.packets, during: now - s.before.at}
	s.before = sample
	before := s.pressure
	if !s.step(seen, w.d.config.SYNThreshold, w.table && usesTable(h)) {
		return
	}
	if err := w.d.setActive(h, &s.pressure); err != nil {
		s.pressure = before // retried at the next check
		w.d.synError = err
	}
}

// sample reads the counters of a frontend: forwarded and answered packets.
func (d *DataPlane) sample(id uint32, now time.Duration) (s sampled, err error) {
	total, err := d.frontendCounts(id)
	if err != nil {
		return s, err
	}
	syn, err := d.synCounts(id)
	if err != nil {
		return s, err
	}
	answered := syn.CookiesSent + syn.ChallengesSent
	return sampled{at: now, syns: total.Flows + answered, packets: total.Packets + answered}, nil
}

// synCounts reads the events of a protected frontend.
func (d *DataPlane) synCounts(id uint32) (c dataplane.SYNCounts, err error) {
	err = bpf.EachCPU(d.kernel.SynCounts, id, func(n bpf.BalancerSynCounts) {
		c.CookiesSent += n.N[bpf.BalancerSynEventSYN_COOKIE_SENT]
		c.CookiesAccepted += n.N[bpf.BalancerSynEventSYN_COOKIE_ACCEPTED]
		c.CookiesRejected += n.N[bpf.BalancerSynEventSYN_COOKIE_REJECTED]
		c.ChallengesSent += n.N[bpf.BalancerSynEventSYN_CHALLENGE_SENT]
		c.ChallengesAnswered += n.N[bpf.BalancerSynEventSYN_CHALLENGE_ANSWERED]
		c.Admitted += n.N[bpf.BalancerSynEventSYN_ADMITTED]
	})
	return c, err
}

// setActive makes traffic see whether a frontend is under pressure.
func (d *DataPlane) setActive(h *programmed, p *pressure) error {
	flags := h.value.Flags &^ entry.SYNActive
	if p.guarded {
		flags |= bpf.BalancerFrontendFlagsFRONTEND_SYN_GUARDED
	}
	if p.checked {
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

// noteSYN stores why the program cannot be loaded, for Describe.
func (d *DataPlane) noteSYN(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.synError = err
}
