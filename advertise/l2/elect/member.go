package elect

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/advertise/l2/wire"
	"github.com/fairlead/fairlead/core/event"
)

// member is another member that could answer.
type member struct {
	address netip.Addr
	alive   bool
	since   time.Time
	// deadline is when it counts as silent without another hello.
	deadline time.Time
	// mine is our token of the session, theirs the member's; sent and received are the last
	// sequence numbers. echo is the token sent back to it as confirmation, retired lists
	// those that it has replaced.
	mine, theirs, echo uint64
	sent, received     uint64
	retired            []uint64
	macs               []wire.MAC
	// offers are its addresses; true for those that it claims.
	offers map[netip.Addr]bool
	// due is the time of the next hello to it, last that of the previous one. The next
	// whole hellos contain all offers, later ones one page of them each.
	due, last           time.Time
	whole, page         int
	fault               string
	hellosIn, hellosOut uint32
}

// wholeHellos is how many consecutive hellos contain all offers after a change.
const wholeHellos = 3

// SetMembers sets the members, possibly including this one.
func (c *Core) SetMembers(now time.Time, addresses []netip.Addr) {
	for _, a := range addresses {
		if c.members[a] == nil && a != c.Self {
			c.members[a] = &member{address: a, since: now, mine: c.token(), due: now, whole: wholeHellos, offers: map[netip.Addr]bool{}}
		}
	}
	for a, m := range c.members {
		if !slices.Contains(addresses, a) {
			c.stale = c.stale || m.alive
			delete(c.members, a)
		}
	}
	c.Tick(now)
}

// SetSelf sets the address by which the others know this member.
func (c *Core) SetSelf(self netip.Addr) {
	c.Self, c.stale = self, true
	delete(c.members, self)
}

// token returns a number that no session has had.
func (c *Core) token() uint64 {
	for {
		if t := c.Random(); t != 0 {
			return t
		}
	}
}

// Receive processes a hello.
func (c *Core) Receive(now time.Time, from netip.Addr, h wire.Hello) error {
	m := c.members[from]
	if m == nil {
		return fmt.Errorf("%s sends hellos, but is not a member", from)
	}
	if slices.Contains(m.retired, h.Mine) {
		return fmt.Errorf("%s: hello of an older session", from)
	}
	if h.Yours != m.mine {
		// It does not know this session yet; its contents may be old.
		m.echo, m.fault = h.Mine, "it does not receive this node's hellos"
		m.due = earlier(m.due, latest(now, m.last.Add(replyGap)))
		c.hello(now)
		return nil
	}
	if !m.alive || m.theirs != h.Mine {
		c.session(now, m, h)
	} else if h.Sequence <= m.received {
		return fmt.Errorf("%s: hello with sequence number %d after %d", from, h.Sequence, m.received)
	}
	m.received, m.deadline, m.fault = h.Sequence, now.Add(h.Hold), ""
	m.hellosIn++
	if !slices.Equal(m.macs, h.MACs) {
		m.macs = h.MACs
		c.reconsider(now)
	}
	c.stale = m.update(h) || c.stale
	// No member expires here: more hellos may be unread.
	c.act(now)
	return nil
}

// session starts a new session with a member.
func (c *Core) session(now time.Time, m *member, h wire.Hello) {
	if m.alive {
		m.retired = append(m.retired, m.theirs)
		c.event(event.L2MemberUp, m.address, "it restarted")
	} else {
		c.event(event.L2MemberUp, m.address, "it sends hellos")
		m.alive, m.since = true, now
		c.contest()
	}
	m.theirs, m.echo = h.Mine, h.Mine
	m.due, m.whole = now, wholeHellos
	c.stale = true
}

// contest ensures that owned addresses are announced again: a member that was cut off and
// comes back has answered for the same addresses.
func (c *Core) contest() {
	for _, v := range c.vips {
		v.contested = v.state == Owner
	}
}

// update applies the contents of a hello, and reports whether anything changed.
func (m *member) update(h wire.Hello) (news bool) {
	offered := make(map[netip.Addr]bool, len(h.Offers))
	for _, o := range h.Offers {
		offered[o.Address] = true
		if claimed, ok := m.offers[o.Address]; !ok || claimed != o.Claimed {
			m.offers[o.Address], news = o.Claimed, true
		}
	}
	for a := range m.offers {
		if !offered[a] && wire.Compare(a, h.First) >= 0 && wire.Compare(a, h.Last) <= 0 {
			delete(m.offers, a)
			news = true
		}
	}
	return news
}

// Refused reports that a member sent an invalid hello.
func (c *Core) Refused(from netip.Addr, why error) {
	if m := c.members[from]; m != nil {
		m.fault = why.Error()
	}
}

// reconsider immediately probes addresses that were found in use by a host that turns out
// to be a member.
func (c *Core) reconsider(now time.Time) {
	for _, v := range c.vips {
		if v.state == Conflict && c.byMAC(v.otherUser) != nil {
			v.due = now
		}
	}
}

// expire handles members that were silent for too long.
func (c *Core) expire(now time.Time) {
	for _, m := range c.members {
		if !m.alive || m.deadline.After(now) {
			continue
		}
		c.event(event.L2MemberSilent, m.address, "no hello for %s", c.Hold)
		m.alive, m.since = false, now
		m.fault = "nothing received"
		m.mine, m.echo, m.retired = c.token(), 0, nil
		clear(m.offers)
		c.stale = true
	}
}

// byMAC returns the member that has an Ethernet address, even if it is silent.
func (c *Core) byMAC(mac wire.MAC) *member {
	for _, m := range c.members {
		if slices.Contains(m.macs, mac) {
			return m
		}
	}
	return nil
}

// whose describes the owner of an Ethernet address.
func (c *Core) whose(mac wire.MAC) string {
	if m := c.byMAC(mac); m != nil {
		return fmt.Sprintf("member %s (%s), which sends no hellos", m.address, mac)
	}
	return mac.String()
}

// notifyAll sends the current state to every member immediately.
func (c *Core) notifyAll(now time.Time) {
	for _, m := range c.members {
		m.due, m.whole = now, wholeHellos
	}
}

// hello sends hellos that are due.
func (c *Core) hello(now time.Time) {
	var pages []wire.Hello
	for _, m := range c.members {
		if m.due.After(now) {
			continue
		}
		if pages == nil {
			pages = c.pages()
		}
		batch := pages
		if m.whole > 0 {
			m.whole--
		} else {
			m.page = (m.page + 1) % len(pages)
			batch = pages[m.page : m.page+1]
		}
		for _, h := range batch {
			m.sent++
			m.hellosOut++
			h.Mine, h.Yours, h.Sequence = m.mine, m.echo, m.sent
			c.out.Hellos = append(c.out.Hellos, HelloTo{m.address, h})
		}
		// Not all at the same moment forever: up to a quarter earlier.
		m.last, m.due = now, now.Add(c.Interval-time.Duration(c.Random()%uint64(c.Interval/4)))
	}
}

// pages returns hellos that together contain all addresses.
func (c *Core) pages() []wire.Hello {
	var offers []wire.Offer
	for _, v := range c.sorted {
		if v.state == Owner || v.state == Standby {
			offers = append(offers, wire.Offer{Address: v.address, Claimed: v.state == Owner})
		}
	}
	var pages []wire.Hello
	for first := wire.LowestAddress; ; {
		h := wire.Hello{Hold: c.Hold, First: first, Last: wire.HighestAddress, MACs: c.macs, Offers: offers}
		if len(offers) <= wire.MaxOffers {
			return append(pages, h)
		}
		h.Offers = offers[:wire.MaxOffers]
		h.Last, offers = h.Offers[len(h.Offers)-1].Address, offers[wire.MaxOffers:]
		first = netip.AddrFrom16(h.Last.As16()).Next()
		pages = append(pages, h)
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
