package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/netip"
	"os"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/client"
	"github.com/fairlead/fairlead/vdn/node"
)

// A pod that restarts while no controller is reachable keeps its lease. DEL of the old
// container could not release it, so nobody else has its addresses. ADD of the new
// container continues with the lease, and the node's daemon enforces it. The daemon or the
// next plugin call, whichever reaches a controller first, renames the lease to the new
// container.

// kept returns the lease that the same pod had on the same interface, from the owed leases,
// or nil if none can be used.
func (c *call) kept() *note {
	if c.pod.uid == "" {
		return nil
	}
	for _, debt := range c.notes.all(owed) {
		l := debt.Lease
		if l == nil || !sameDomain(debt.Controller, c.Controller) || debt.Network != c.Network ||
			l.Attachment.OwnerUID != c.pod.uid || l.Attachment.Interface != c.iface || l.Attachment.Node != c.Node {
			continue
		}
		if !slices.ContainsFunc(c.addresses, func(a netip.Addr) bool { return !l.Attachment.Has(a) }) {
			return &debt
		}
	}
	return nil
}

// inherit continues with a lease that the node still has, if no controller responds. why is
// the controllers' error.
func (c *call) inherit(host *netlink.Handle, why error) (vdn.Lease, error) {
	debt := c.kept()
	if !client.IsUnavailable(why) || debt == nil {
		return vdn.Lease{}, c.refused(why)
	}
	lease := *debt.Lease
	devices, err := c.devices(host, lease.Network)
	if err != nil {
		return vdn.Lease{}, err
	}
	if lease.Network.Mode == vdn.HostDevice && !slices.Contains(devices, lease.Attachment.Device) {
		return vdn.Lease{}, c.refused(why) // another pod has the NIC now
	}
	lease.Attachment.ID, lease.Attachment.Container, lease.Attachment.Owner = c.id(), c.container, c.pod.owner
	n := c.note()
	n.Lease, n.Replaces = &lease, append([]string{debt.ID}, debt.Replaces...)
	if err := c.notes.write(attached, n); err != nil {
		return vdn.Lease{}, err
	}
	c.say("no controller answers (%v): continuing with the lease of %s", why, debt.ID)
	return lease, c.notes.remove(owed, debt.ID) // while a note names it, the owed lease is not released
}

// inherited returns the note if this attachment continues with a lease that no controller
// knows by its ID yet.
func (c *call) inherited() *note {
	if n := c.notes.read(attached, c.id()); n != nil && len(n.Replaces) > 0 {
		return n
	}
	return nil
}

// adopted has the node's daemon enforce the attachment. A node without the daemon enforces
// nothing.
func (c *call) adopted(ctx context.Context, n *note, report vdn.UpReport) error {
	a := n.Lease.Attachment
	a.Device, a.MAC, a.NetNS, a.Phase = report.Device, report.MAC, report.NetNS, vdn.Up
	n.Lease.Attachment = a
	if err := c.notes.write(attached, *n); err != nil {
		return err
	}
	if _, err := os.Stat(node.Socket); err != nil {
		return nil
	}
	text, err := json.Marshal(node.Adoption{Attachment: a, Replaces: n.Replaces})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://node/attachments", bytes.NewReader(text))
	if err != nil {
		return err
	}
	client := node.Client(node.Socket)
	defer client.CloseIdleConnections()
	answer, err := client.Do(request)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fail(types.ErrTryAgainLater, "%v", c.deaf(err))
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusNoContent {
		said, _ := io.ReadAll(io.LimitReader(answer.Body, 4096)) // a partial body is good enough
		return fail(types.ErrTryAgainLater, "%v", c.deaf(fmt.Errorf("%s: %s", answer.Status, said)))
	}
	return nil
}

// handOver renames leases that continue under another container's name at the controller.
// It reports whether a controller responds.
func (c *call) handOver(ctx context.Context) (answers bool) {
	for _, n := range c.notes.all(attached) {
		if len(n.Replaces) == 0 || n.Lease == nil || !sameDomain(n.Controller, c.Controller) {
			continue
		}
		a := n.Lease.Attachment
		_, err := c.vdn.Attach(ctx, a.Continue(n.Replaces))
		if err == nil && a.Phase == vdn.Up {
			_, err = c.vdn.Up(ctx, a.ID, vdn.UpReport{Device: a.Device, MAC: a.MAC, NetNS: a.NetNS})
		}
		if client.IsUnavailable(err) {
			return false
		}
		if err != nil {
			c.say("the controller rejects that %s continues its lease: delete its pod: %v", a.ID, err)
			continue
		}
		n.Replaces = nil
		if err := c.notes.write(attached, n); err != nil {
			c.say("%v", err)
		}
	}
	return true
}

// named returns all current and former IDs in the notes of attachments. Their leases must
// not be released or collected.
func (n notes) named() map[string]bool {
	all := map[string]bool{}
	for _, one := range n.all(attached) {
		all[one.ID] = true
		for _, id := range one.Replaces {
			all[id] = true
		}
	}
	return all
}
