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

// GC removes the attachments of a configuration that the runtime no longer has: first the
// devices that still exist, then the leases.
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
			keep = append(keep, n.Replaces...) // the controller may know the lease by these IDs
		case n.Conf != c.Name || n.Network != c.Network:
			keep = append(keep, n.ID) // another configuration's, possibly of the same network
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

// together joins errors into the one that a runtime receives, with the first code found.
func together(errs []error) error {
	all := errors.Join(errs...)
	var first *types.Error
	if errors.As(all, &first) {
		return fail(first.Code, "%s", strings.ReplaceAll(all.Error(), "\n", "; "))
	}
	return all
}

// dispose removes the device of a note.
func (c *call) dispose(n note) error {
	p, err := openPod(n.NetNS)
	if err == nil {
		defer p.close()
	} else if !errors.Is(err, errGone) {
		return gone(n.NetNS, err)
	}
	return c.takeAway(n, p)
}

// collectLeases releases this network's leases on this node except those to keep, and
// removes their notes.
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

// disposeUnnoted removes devices that the controller knows but this node has no note of. A
// device that it cannot remove keeps its lease.
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
