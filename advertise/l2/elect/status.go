package elect

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Address is the state of one address.
type Address struct {
	Address netip.Addr
	State   State
	// Owner is the member that answers, as far as known here; invalid if none does.
	Owner netip.Addr
	// Why explains State.
	Why   string
	Since time.Time
}

// Member is the state of another member.
type Member struct {
	Address netip.Addr
	Alive   bool
	Since   time.Time
	// Fault is why nothing, or nothing valid, was last received from it.
	Fault          string
	Received, Sent uint32
}

// Addresses returns the state of every address, sorted.
func (c *Core) Addresses(now time.Time) []Address {
	all := make([]Address, 0, len(c.vips))
	for _, v := range c.sorted {
		c.survey(v)
		shown := Address{Address: v.address, State: v.state, Since: v.since, Owner: v.claimant, Why: c.why(now, v)}
		if v.state == Owner {
			shown.Owner = c.Self
		}
		all = append(all, shown)
	}
	return all
}

func (c *Core) why(now time.Time, v *vip) string {
	switch v.state {
	case NoLink:
		return "no layer 2 interface has a link"
	case Probing:
		return "checking whether the address is in use on the segment"
	case Conflict:
		return fmt.Sprintf("%s already has the address, which is probed again every %s", c.whose(v.otherUser), retryConflict)
	case Owner:
		return c.whyOwner(now, v)
	}
	switch {
	case v.best == c.Self && !v.claimant.IsValid():
		return "this node has the highest rank and is about to take over"
	case v.best == c.Self:
		return fmt.Sprintf("this node has the highest rank, but %s has not released the address yet: does it receive this node's hellos?", v.claimant)
	case v.best == v.claimant:
		return fmt.Sprintf("%s has the highest rank of %d members that offer it", v.best, v.candidates)
	}
	return fmt.Sprintf("%s has the highest rank of %d members that offer it, and has not taken over yet", v.best, v.candidates)
}

func (c *Core) whyOwner(now time.Time, v *vip) string {
	text := fmt.Sprintf("this node has the highest rank of %d members that offer it", v.candidates)
	if v.candidates == 1 {
		text = "no other live member offers it"
	}
	if !v.seen.IsZero() && now.Sub(v.seen) < remember {
		text += fmt.Sprintf("; address conflict: %s also uses it, last seen %s ago", c.whose(v.otherUser), now.Sub(v.seen).Round(time.Second))
	}
	return text
}

// Strange reports whether a host that is not a live member uses an address that belongs
// to this node: an operator must fix that.
func (c *Core) Strange(now time.Time, a netip.Addr) bool {
	v := c.vips[a]
	return v != nil && (v.state == Conflict || v.state == Owner && !v.seen.IsZero() && now.Sub(v.seen) < remember)
}

// Members returns the state of every other member, sorted.
func (c *Core) Members() []Member {
	var all []Member
	for _, m := range c.members {
		shown := Member{Address: m.address, Alive: m.alive, Since: m.since, Fault: m.fault, Received: m.hellosIn, Sent: m.hellosOut}
		if !m.alive {
			shown.Fault = cmp.Or(m.fault, "nothing received yet")
		}
		all = append(all, shown)
	}
	slices.SortFunc(all, func(a, b Member) int { return a.Address.Compare(b.Address) })
	return all
}

// Heir returns who may answer next for an address that this member has released: taken is
// a member that already does; otherwise, awaited is the first by rank of the live members
// that offer it. If neither is valid, nobody will.
func (c *Core) Heir(address netip.Addr) (taken, awaited netip.Addr) {
	v := vip{address: address}
	c.survey(&v)
	return v.claimant, v.best
}
