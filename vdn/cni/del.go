package cni

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
)

// Del takes a pod's device away and gives its lease back. What is not there needs
// no deletion; where the runtime does not say which namespace it was, the note does.
// A controller that is away is told later: see release.
func Del(args *skel.CmdArgs) error {
	c, err := newCall(args, Parse)
	if err != nil {
		return err
	}
	n := c.noteOr(note{ID: c.id()})
	n.NetNS = cmp.Or(c.netns, n.NetNS)
	if err := c.dispose(n); err != nil {
		return err
	}
	return c.release()
}

// release gives a lease back. Where the controller does not take it, the node owes
// it, and the pod is gone all the same: whatever is called here next tells the
// controller, if it is back (settle). Until then nobody else has the addresses.
func (c *call) release() error {
	ctx, cancel := c.brief()
	defer cancel()
	if c.notes.read(attached, c.id()) == nil && c.notes.named()[c.id()] {
		c.settle(ctx) // the pod's next container goes on with the lease
		return nil
	}
	debt := c.noteOr(c.note())
	err := c.pay(ctx, debt)
	if err != nil {
		c.say("the lease is owed: %v", c.refused(err))
		debt.NIC = nil
		if err := c.notes.write(owed, debt); err != nil {
			return err
		}
	}
	if err := c.notes.remove(attached, c.id()); err != nil {
		return err
	}
	if err == nil {
		c.settle(ctx) // by now, no note has this attachment handed over
	}
	return nil
}

// pay gives a lease back, by whichever of its names the controller knows it.
func (c *call) pay(ctx context.Context, debt note) error {
	for _, id := range append([]string{debt.ID}, debt.Replaces...) {
		if err := c.vdn.Detach(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// mostSettled is how many debts one call pays: they must not make it slow.
const mostSettled = 20

// settle gives back leases that the controller could not be told of. What is not
// taken now stays owed.
func (c *call) settle(ctx context.Context) {
	if !c.handOver(ctx) {
		return
	}
	paid, used := 0, c.notes.named()
	for _, debt := range c.notes.all(owed) {
		if !sameDomain(debt.Controller, c.Controller) || debt.ID == c.id() || used[debt.ID] || paid == mostSettled {
			continue
		}
		if err := c.pay(ctx, debt); err != nil {
			return
		}
		if err := c.notes.remove(owed, debt.ID); err != nil {
			c.say("%v", err)
		}
		paid++
	}
}

// sameDomain says whether two lists of controllers have one in common: a list may have
// changed since a debt was noted.
func sameDomain(a, b string) bool {
	urls := func(list string) (all []string) {
		for one := range strings.SplitSeq(list, ",") {
			all = append(all, strings.TrimSuffix(strings.TrimSpace(one), "/"))
		}
		return all
	}
	return slices.ContainsFunc(urls(a), func(one string) bool { return slices.Contains(urls(b), one) })
}
