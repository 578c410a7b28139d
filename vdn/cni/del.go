package cni

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
)

// Del removes a pod's device and releases its lease. Deleting what does not exist succeeds.
// If the runtime does not name the namespace, the note does. If the controller is
// unreachable, it is informed later: see release.
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

// release releases a lease. If the controller cannot be reached, the node records the lease
// as owed and DEL still succeeds: the next call that reaches the controller releases it
// (settle). Until then the addresses stay reserved.
func (c *call) release() error {
	ctx, cancel := c.brief()
	defer cancel()
	if c.notes.read(attached, c.id()) == nil && c.notes.named()[c.id()] {
		c.settle(ctx) // the pod's next container continues with the lease
		return nil
	}
	debt := c.noteOr(c.note())
	err := c.pay(ctx, debt)
	if err != nil {
		c.say("releasing the lease is pending: %v", c.refused(err))
		debt.NIC = nil
		if err := c.notes.write(owed, debt); err != nil {
			return err
		}
	}
	if err := c.notes.remove(attached, c.id()); err != nil {
		return err
	}
	if err == nil {
		c.settle(ctx) // now no note has this attachment to hand over
	}
	return nil
}

// pay releases a lease under each name that the controller may know it by.
func (c *call) pay(ctx context.Context, debt note) error {
	for _, id := range append([]string{debt.ID}, debt.Replaces...) {
		if err := c.vdn.Detach(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// mostSettled limits how many owed leases one call releases, which bounds its duration.
const mostSettled = 20

// settle releases owed leases. Those that the controller does not accept now remain owed.
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

// sameDomain reports whether two lists of controllers have one in common. A list may have
// changed since an owed lease was recorded.
func sameDomain(a, b string) bool {
	urls := func(list string) (all []string) {
		for one := range strings.SplitSeq(list, ",") {
			all = append(all, strings.TrimSuffix(strings.TrimSpace(one), "/"))
		}
		return all
	}
	return slices.ContainsFunc(urls(a), func(one string) bool { return slices.Contains(urls(b), one) })
}
