package cni

import (
	"context"
	"errors"
	"slices"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/fairlead/fairlead/vdn"
)

// GC undoes attachments of a configuration that the runtime no longer has: their
// devices first, as far as they are still there, then their leases.
func GC(args *skel.CmdArgs) error {
	c, err := newCall(args, Parse)
	if err != nil {
		return err
	}
	return c.collect()
}

func (c *call) collect() error {
	ctx, cancel := c.deadline()
	defer cancel()
	c.settle(ctx)
	keep, errs := slices.Clone(c.Valid), []error{}
	for _, n := range c.notes.all(attached) {
		switch {
		case slices.Contains(c.Valid, n.ID):
		case n.Conf != c.Name || n.Network != c.Network:
			keep = append(keep, n.ID) // another configuration's, which may be of the same network
		default:
			if err := c.dispose(n); err != nil {
				errs = append(errs, err)
				keep = append(keep, n.ID)
			}
		}
	}
	return errors.Join(append(errs, c.refused(c.collectLeases(ctx, keep)))...)
}

// dispose takes the device of a note away.
func (c *call) dispose(n note) error {
	p, err := openPod(n.NetNS)
	if err == nil {
		defer p.close()
	} else if !errors.Is(err, errGone) {
		return gone(n.NetNS, err)
	}
	return c.takeAway(n, p)
}

// collectLeases releases all of this network and node but some, and forgets them.
func (c *call) collectLeases(ctx context.Context, keep []string) error {
	if err := c.disposeUnnoted(ctx, keep); err != nil {
		return err
	}
	released, err := c.vdn.Collect(ctx, c.Node, c.Network, keep)
	if err != nil {
		return err
	}
	for _, id := range released {
		c.say("released %s", id)
	}
	for _, n := range c.notes.all(attached) {
		if n.Conf == c.Name && n.Network == c.Network && !slices.Contains(keep, n.ID) {
			err = errors.Join(err, c.notes.remove(attached, n.ID))
		}
	}
	return err
}

// disposeUnnoted takes devices away that the controller knows of, and this node no
// longer.
func (c *call) disposeUnnoted(ctx context.Context, keep []string) error {
	all, err := c.vdn.Attachments(ctx, c.Network, c.Node)
	if err != nil {
		return err
	}
	var errs []error
	for _, a := range all {
		if !slices.Contains(keep, a.ID) && c.notes.read(attached, a.ID) == nil && a.Phase == vdn.Up {
			errs = append(errs, c.dispose(note{ID: a.ID, NetNS: a.NetNS, MAC: a.MAC}))
		}
	}
	return errors.Join(errs...)
}
