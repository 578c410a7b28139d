// Package elect decides which member of a segment answers for which VIP, and when it
// announces that. It is a state machine without its own clock, sockets or randomness:
// events go in with their time, actions come out.
//
// Every member sends every other its offers, three times per second. Of the live members
// that offer an address, the one with the highest rank for it answers. All members have
// the same lists and compute the same result, so they need neither queries nor an API
// server. One more rule prevents two members from answering at the same time: no member
// takes an address that a live member still claims.
package elect

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/advertise/l2/wire"
	"github.com/fairlead/fairlead/core/event"
)

// Config configures a Core.
type Config struct {
	// Self is the address by which the other members know this one.
	Self netip.Addr
	// Interval is the time between hellos, Hold how long a member counts as alive without
	// one.
	Interval, Hold time.Duration
	// Random returns unpredictable numbers.
	Random func() uint64
}

// When an owner announces an address after taking it, and then every refresh: this
// repairs lost frames and flushed tables.
var (
	announceAt = []time.Duration{0, 100 * time.Millisecond, time.Second, 5 * time.Second}
	refresh    = time.Minute
)

// Duplicate address detection: the number of probes, an Interval apart, followed by one
// more Interval to listen (RFC 5227, section 1.1, has longer ones for arbitrary links).
const probes = 3

const (
	// retryConflict is when an address that was found in use is probed again.
	retryConflict = 10 * time.Second
	// defendInterval is DEFEND_INTERVAL of RFC 5227: the minimum time between two
	// defenses.
	defendInterval = 10 * time.Second
	// settle is how long an address is offered before it is claimed, so that members that
	// claim it, or rank higher, are known.
	settle = 100 * time.Millisecond
	// remember is how long someone else's use of our address is reported: longer than
	// refresh, after which another member is seen again.
	remember = 90 * time.Second
	// replyGap is the minimum time between two hellos to a member that are only replies.
	replyGap = 20 * time.Millisecond
)

// State is the state of an address at this member.
type State string

// Address states.
const (
	Probing  State = "probing"  // checking whether it is free
	Conflict State = "conflict" // a host that is not a member has it
	Standby  State = "standby"  // offered; another one answers, or none yet
	Owner    State = "owner"    // this member answers
	NoLink   State = "no-link"  // no interface can send answers
)

// vip is one address.
type vip struct {
	address netip.Addr
	state   State
	since   time.Time
	// due is the time of the next probe, retry or announcement, or the end of settle;
	// zero: none. step counts them.
	due  time.Time
	step int
	// otherUser is another user of the address, and seen when it was last seen.
	otherUser wire.MAC
	seen      time.Time
	defended  time.Time
	// contested means that another member also claims it, or may have done so while it
	// was silent.
	contested bool
	// claimant is the other member that claims it, best the member that should have it.
	claimant, best netip.Addr
	candidates     int
}

// Core is the state machine. It is not safe for concurrent use.
type Core struct {
	Config
	running bool
	macs    []wire.MAC
	vips    map[netip.Addr]*vip
	sorted  []*vip // in wire order
	members map[netip.Addr]*member
	// stale means that owners must be determined again.
	stale bool
	out   Actions
}

// Actions are the pending actions, to be executed in this order.
type Actions struct {
	// Hellos go to the members; those to one member must stay in order.
	Hellos []HelloTo
	// Probe and Announce are addresses to probe and announce.
	Probe, Announce []netip.Addr
	// Events must be logged.
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
	// Type is its type in the journal.
	Type event.Type
}

// New returns a Core without link, members and addresses.
func New(c Config) *Core {
	return &Core{Config: c, vips: map[netip.Addr]*vip{}, members: map[netip.Addr]*member{}}
}

// SetAddresses replaces the addresses that this member can answer for.
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
				c.event(event.L2AddressReleased, a, "no longer served by this node")
			}
			delete(c.vips, a)
			c.notifyAll(now)
		}
	}
	c.sorted = slices.SortedFunc(maps.Values(c.vips), func(a, b *vip) int { return wire.Compare(a.address, b.address) })
	c.Tick(now)
}

// SetLink sets whether any interface can send answers, and the Ethernet addresses of all.
// A link that comes back may have new hosts on it: every address is probed again.
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
	c.notifyAll(now)
	c.Tick(now)
}

// probe starts to check whether an address is free.
func (c *Core) probe(now time.Time, v *vip) {
	if !c.running {
		if v.state == Owner {
			c.event(event.L2AddressReleased, v.address, "no interface can send answers")
		}
		c.turn(now, v, NoLink)
		return
	}
	c.turn(now, v, Probing)
	v.step, v.otherUser, v.seen = 0, wire.MAC{}, time.Time{}
	v.due = now.Add(time.Duration(c.Random() % uint64(c.Interval/3)))
}

func (c *Core) turn(now time.Time, v *vip, s State) {
	if v.state != s {
		v.state, v.since, v.due = s, now, time.Time{}
		c.stale = true
	}
}

// Wanted reports that another host probes an address, in order to take it.
func (c *Core) Wanted(now time.Time, address netip.Addr, mac wire.MAC) {
	if v := c.vips[address]; v != nil && v.state == Probing {
		c.Used(now, address, mac)
	}
}

// Used reports that a host on the segment uses an address. mac is its Ethernet address.
func (c *Core) Used(now time.Time, address netip.Addr, mac wire.MAC) {
	v := c.vips[address]
	if v == nil || slices.Contains(c.macs, mac) {
		return
	}
	switch v.state {
	case Probing:
		v.otherUser, v.seen = mac, now
	case Owner:
		if m := c.byMAC(mac); m != nil && m.alive {
			return // it releases the address as soon as it has our hello
		}
		v.otherUser, v.seen = mac, now
		if now.Sub(v.defended) >= defendInterval {
			v.defended = now
			c.out.Announce = append(c.out.Announce, address)
			c.event(event.L2AddressConflict, address, "%s also uses it; announced it again", c.whose(mac))
		}
	}
}

// Owns reports whether to answer for an address.
func (c *Core) Owns(address netip.Addr) bool {
	v := c.vips[address]
	return v != nil && v.state == Owner
}

// Tick does what is due. It must be called at the time returned by Next; additional calls
// are harmless.
func (c *Core) Tick(now time.Time) {
	c.expire(now)
	for _, v := range c.sorted {
		if !v.due.IsZero() && !v.due.After(now) {
			c.step(now, v)
		}
	}
	c.act(now)
}

// act does what follows from an event.
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

// judge ends the probing of an address. A member that has it will release it.
func (c *Core) judge(now time.Time, v *vip) {
	if v.otherUser == (wire.MAC{}) || c.byMAC(v.otherUser) != nil {
		v.otherUser, v.seen = wire.MAC{}, time.Time{}
		c.turn(now, v, Standby)
		v.due = now.Add(settle)
		c.notifyAll(now)
		return
	}
	c.turn(now, v, Conflict)
	v.due = now.Add(retryConflict)
	c.event(event.L2AddressConflict, v.address, "%s uses it; probing again in %s", c.whose(v.otherUser), retryConflict)
}

// decide determines for each address whether this member answers.
func (c *Core) decide(now time.Time) {
	c.stale = false
	for _, v := range c.sorted {
		c.survey(v)
		mine := v.best == c.Self
		switch {
		case v.state == Owner && !mine:
			c.turn(now, v, Standby)
			v.contested = false
			c.event(event.L2AddressReleased, v.address, "handed over to %s", v.best)
			c.notifyAll(now)
		case v.state == Owner && v.claimant.IsValid():
			v.contested = true
		case v.state == Owner && v.contested:
			// Tables contain the other member's Ethernet address.
			v.contested = false
			c.announce(now, v)
		case v.state == Standby && v.due.IsZero() && mine && !v.claimant.IsValid():
			c.turn(now, v, Owner)
			c.event(event.L2AddressClaimed, v.address, "no other member claims it")
			c.announce(now, v)
			c.notifyAll(now)
		}
	}
	c.stale = false
}

// announce starts to announce an address.
func (c *Core) announce(now time.Time, v *vip) {
	v.step, v.due = 0, now
	c.step(now, v)
}

// survey determines who should have an address, and who claims it.
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

// Next returns when to call Tick next.
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

// Take returns the pending actions, once.
func (c *Core) Take() Actions {
	out := c.out
	c.out = Actions{}
	return out
}

func (c *Core) event(of event.Type, a netip.Addr, format string, args ...any) {
	c.out.Events = append(c.out.Events, Event{a, fmt.Sprintf(format, args...), of})
}
