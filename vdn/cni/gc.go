package cni

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

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
	if err := c.named(); err != nil {
		return err
	}
	ctx, cancel := c.deadline()
	defer cancel()
	c.settle(ctx)
	keep, errs := slices.Clone(c.Valid), []error{}
	for _, n := range c.notes.all(attached) {
		switch {
		case slices.Contains(c.Valid, n.ID):
			keep = append(keep, n.Replaces...) // the controller may know its lease by these
		case n.Conf != c.Name || n.Network != c.Network:
			keep = append(keep, n.ID) // another configuration's, which may be of the same network
			keep = append(keep, n.Replaces...)
		default:
			if err := c.dispose(n); err != nil {
				errs = append(errs, err)
				keep = append(keep, n.ID)
			}
		}
	}
	return together(append(errs, c.collectLeases(ctx, keep)...))
}

// together is all errors as one, which is all that a runtime is told, with the code
// of the first that has one.
func together(errs []error) error {
	all := errors.Join(errs...)
	var first *types.Error
	if errors.As(all, &first) {
		return fail(first.Code, "%s", strings.ReplaceAll(all.Error(), "\n", "; "))
	}
	return all
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
func (c *call) collectLeases(ctx context.Context, keep []string) []error {
	known, err := c.vdn.Attachments(ctx, c.Network, c.Node)
	if err != nil {
		return []error{c.refused(err)}
	}
	left, errs := c.disposeUnnoted(known, keep)
	keep = append(keep, left...)
	released, err := c.vdn.Collect(ctx, c.Node, c.Network, keep)
	if err != nil {
		return append(errs, c.refused(err))
	}
	for _, id := range released {
		c.say("released %s", id)
	}
	for _, n := range c.notes.all(attached) {
		if n.Conf == c.Name && n.Network == c.Network && !slices.Contains(keep, n.ID) {
			errs = append(errs, c.notes.remove(attached, n.ID))
		}
	}
	return errs
}

// disposeUnnoted takes devices away that the controller knows of, and this node no
// longer. What it could not take away is left with its lease.
func (c *call) disposeUnnoted(known []vdn.Attachment, keep []string) (left []string, errs []error) {
	for _, a := range known {
		if slices.Contains(keep, a.ID) || c.notes.read(attached, a.ID) != nil || a.Phase != vdn.Up {
			continue
		}
		if err := c.dispose(note{ID: a.ID, NetNS: a.NetNS, MAC: a.MAC}); err != nil {
			errs, left = append(errs, err), append(left, a.ID)
		}
	}
	return left, errs
}
