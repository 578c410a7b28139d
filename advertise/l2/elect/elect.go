// Package elect decides which member of a segment answers for which VIP, and
// when it says so. It is a state machine without clock, sockets or randomness
// of its own: what happens goes in with the time at which it did, what is to be
// done comes out.
//
// Every member tells every other what it offers, three times a second; what
// offers an address, is alive, and has the highest rank for it, answers. Nobody
// asks anybody, and nobody needs an API server: the lists are the same, so the
// answers are. One more rule keeps two from answering at once: nobody takes
// what a living member still claims.
package elect

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/advertise/l2/wire"
)

// Config is what a Core is made with.
type Config struct {
	// Self is the address that the other members know this one by.
	Self netip.Addr
	// Interval is the time between hellos, Hold how long a member counts as
	// alive without one.
	Interval, Hold time.Duration
	// Random gives numbers that nobody can guess.
	Random func() uint64
}

// When an owner announces an address after it took it, and from then on every
// refresh: what was lost, or a table that was emptied, is put right.
var (
	announceAt = []time.Duration{0, 100 * time.Millisecond, time.Second, 5 * time.Second}
	refresh    = time.Minute
)

// Detection of duplicates: so many probes an Interval apart, and one more
// Interval to listen (RFC 5227, section 1.1, has longer ones for links that it
// knows nothing of).
const probes = 3

const (
	// retryConflict is when an address that was found in use is probed again.
	retryConflict = 10 * time.Second
	// defendInterval is RFC 5227's DEFEND_INTERVAL: between two defences.
	defendInterval = 10 * time.Second
	// settle is how long an address is offered before it is taken, so that
	// those who claim it, or come first, are heard.
	settle = 100 * time.Millisecond
	// remember is how long somebody else's use of our address is told of:
	// longer than refresh, after which another member shows itself again.
	remember = 90 * time.Second
	// replyGap is between two hellos to one member that merely answer.
	replyGap = 20 * time.Millisecond
)

// State is what becomes of an address at this member.
type State string

// The states of an address.
const (
	Probing  State = "probing"  // it is being found out whether it is free
	Conflict State = "conflict" // somebody who is no member has it
	Standby  State = "standby"  // offered; another answers, or none yet
	Owner    State = "owner"    // this member answers
	NoLink   State = "no-link"  // no interface can carry answers
)

// vip is one address.
type vip struct {
	address netip.Addr
	state   State
	since   time.Time
	// due is the next probe, retry or announcement, or the end of settle; zero
	// for none. step counts them.
	due  time.Time
	step int
	// stranger is who else uses the address, and seen when it was last seen.
	stranger wire.MAC
	seen     time.Time
	defended time.Time
	// contested: another member claims it, too, or may have done so while
	// nothing was heard of it.
	contested bool
	// claimant is who else claims it, best who should have it.
	claimant, best netip.Addr
	candidates     int
}

// Core is the state machine. It is for one goroutine at a time.
type Core struct {
	Config
	running bool
	macs    []wire.MAC
	vips    map[netip.Addr]*vip
	sorted  []*vip // in the order of the wire
	members map[netip.Addr]*member
	// stale: who owns what must be found out anew.
	stale bool
	out   Actions
}

// Actions are what is to be done now, in this order.
type Actions struct {
	// Hellos go to the members; all of one member in their order.
	Hellos []HelloTo
	// Probe and Announce are addresses to be probed and announced.
	Probe, Announce []netip.Addr
	// Events are worth a line in a log.
	Events []Event
}

// HelloTo is a hello with its receiver.
type HelloTo struct {
	To netip.Addr
	wire.Hello
}

// Event is something that happened to an address or a member.
type Event struct {
	Address netip.Addr
	Text    string
	// Bad: somebody should look at it.
	Bad bool
}

// New gives a Core without link, members and addresses.
func New(c Config) *Core {
	return &Core{Config: c, vips: map[netip.Addr]*vip{}, members: map[netip.Addr]*member{}}
}

// SetAddresses says which addresses this member can answer for: exactly these.
func (c *Core) SetAddresses(now time.Time, addresses []netip.Addr) {
	wanted := map[netip.Addr]bool{}
	for _, a := range addresses {
		wanted[a] = true
		if c.vips[a] == nil {
			c.vips[a] = &vip{address: a}
			c.probe(now, c.vips[a])
		}
	}
	for a, v := range c.vips {
		if !wanted[a] {
			if v.state == Owner {
				c.event(a, false, "let go of: no longer served here")
			}
			delete(c.vips, a)
			c.tellAll(now)
		}
	}
	c.sorted = slices.SortedFunc(maps.Values(c.vips), func(a, b *vip) int { return wire.Compare(a.address, b.address) })
	c.Tick(now)
}

// SetLink says whether any interface can carry answers, and the Ethernet
// addresses of all. A link that comes back may have strangers on it: every
// address is probed anew.
func (c *Core) SetLink(now time.Time, running bool, macs []wire.MAC) {
	changed := running != c.running
	if !changed && slices.Equal(macs, c.macs) {
		return
	}
	c.running, c.macs = running, slices.Clone(macs)
	if changed {
		for _, v := range c.sorted {
			c.probe(now, v)
		}
	}
	c.tellAll(now)
	c.Tick(now)
}

// probe begins to find out whether an address is free.
func (c *Core) probe(now time.Time, v *vip) {
	if !c.running {
		c.turn(now, v, NoLink)
		return
	}
	c.turn(now, v, Probing)
	v.step, v.stranger, v.seen = 0, wire.MAC{}, time.Time{}
	v.due = now.Add(time.Duration(c.Random() % uint64(c.Interval/3)))
}

func (c *Core) turn(now time.Time, v *vip, s State) {
	if v.state != s {
		v.state, v.since, v.due = s, now, time.Time{}
		c.stale = true
	}
}

// Wanted says that somebody asks whether an address is free, to take it.
func (c *Core) Wanted(now time.Time, address netip.Addr, mac wire.MAC) {
	if v := c.vips[address]; v != nil && v.state == Probing {
		c.Used(now, address, mac)
	}
}

// Used says that somebody on the segment uses an address: its Ethernet address
// is mac.
func (c *Core) Used(now time.Time, address netip.Addr, mac wire.MAC) {
	v := c.vips[address]
	if v == nil || slices.Contains(c.macs, mac) {
		return
	}
	switch v.state {
	case Probing:
		v.stranger, v.seen = mac, now
	case Owner:
		if m := c.byMAC(mac); m != nil && m.alive {
			return // it lets go as soon as it has our hello
		}
		v.stranger, v.seen = mac, now
		if now.Sub(v.defended) >= defendInterval {
			v.defended = now
			c.out.Announce = append(c.out.Announce, address)
			c.event(address, true, "defended: %s uses it, too", c.whose(mac))
		}
	}
}

// Owns says whether to answer for an address.
func (c *Core) Owns(address netip.Addr) bool {
	v := c.vips[address]
	return v != nil && v.state == Owner
}

// Tick does what is due. It is called when Next says so; more often does no
// harm.
func (c *Core) Tick(now time.Time) {
	c.expire(now)
	for _, v := range c.sorted {
		if !v.due.IsZero() && !v.due.After(now) {
			c.step(now, v)
		}
	}
	c.act(now)
}

// act does what follows from what has happened.
func (c *Core) act(now time.Time) {
	if c.stale {
		c.decide(now)
	}
	c.hello(now)
}

// step does what is due for one address.
func (c *Core) step(now time.Time, v *vip) {
	switch v.state {
	case Probing:
		if v.step < probes {
			c.out.Probe = append(c.out.Probe, v.address)
			v.step++
			v.due = now.Add(c.Interval)
			return
		}
		c.judge(now, v)
	case Conflict:
		c.probe(now, v)
	case Standby:
		v.due, c.stale = time.Time{}, true
	case Owner:
		c.out.Announce = append(c.out.Announce, v.address)
		if v.step++; v.step < len(announceAt) {
			v.due = now.Add(announceAt[v.step] - announceAt[v.step-1])
		} else {
			v.due = now.Add(refresh)
		}
	}
}

// judge ends the probing of an address. A member that has it will let go.
func (c *Core) judge(now time.Time, v *vip) {
	if v.stranger == (wire.MAC{}) || c.byMAC(v.stranger) != nil {
		v.stranger, v.seen = wire.MAC{}, time.Time{}
		c.turn(now, v, Standby)
		v.due = now.Add(settle)
		c.tellAll(now)
		return
	}
	c.turn(now, v, Conflict)
	v.due = now.Add(retryConflict)
	c.event(v.address, true, "not taken: %s has it already; tried again in %s", c.whose(v.stranger), retryConflict)
}

// decide finds out for each address whether this member answers.
func (c *Core) decide(now time.Time) {
	c.stale = false
	for _, v := range c.sorted {
		c.survey(v)
		mine := v.best == c.Self
		switch {
		case v.state == Owner && !mine:
			c.turn(now, v, Standby)
			v.contested = false
			c.event(v.address, false, "left to %s", v.best)
			c.tellAll(now)
		case v.state == Owner && v.claimant.IsValid():
			v.contested = true
		case v.state == Owner && v.contested:
			// Tables have the other's Ethernet address.
			v.contested = false
			c.announce(now, v)
		case v.state == Standby && v.due.IsZero() && mine && !v.claimant.IsValid():
			c.turn(now, v, Owner)
			c.event(v.address, false, "taken")
			c.announce(now, v)
			c.tellAll(now)
		}
	}
	c.stale = false
}

// announce begins the announcements of an address.
func (c *Core) announce(now time.Time, v *vip) {
	v.step, v.due = 0, now
	c.step(now, v)
}

// survey finds out who could have an address, and who has it.
func (c *Core) survey(v *vip) {
	v.best, v.claimant, v.candidates = netip.Addr{}, netip.Addr{}, 0
	better := func(m, than netip.Addr) bool { return !than.IsValid() || before(v.address, m, than) }
	if v.state == Owner || v.state == Standby {
		v.best, v.candidates = c.Self, 1
	}
	for _, m := range c.members {
		claimed, offers := m.offers[v.address]
		if !m.alive || !offers {
			continue
		}
		v.candidates++
		if better(m.address, v.best) {
			v.best = m.address
		}
		if claimed && better(m.address, v.claimant) {
			v.claimant = m.address
		}
	}
}

// Next is when Tick is to be called next.
func (c *Core) Next() time.Time {
	var next time.Time
	sooner := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	for _, v := range c.sorted {
		if !v.due.IsZero() {
			sooner(v.due)
		}
	}
	for _, m := range c.members {
		sooner(m.due)
		if m.alive {
			sooner(m.deadline)
		}
	}
	return next
}

// Take gives what is to be done, once.
func (c *Core) Take() Actions {
	out := c.out
	c.out = Actions{}
	return out
}

func (c *Core) event(a netip.Addr, bad bool, format string, args ...any) {
	c.out.Events = append(c.out.Events, Event{a, fmt.Sprintf(format, args...), bad})
}
