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

// A pod that is restarted while no controller answers keeps its lease: DEL of its old
// container could not give that back, so nobody else has its addresses. ADD of the new
// one goes on with them, the node's daemon enforces that, and the first to reach a
// controller first, the daemon or the next call here, has the lease bear the new
// container's name.

// kept finds the lease that the same pod had on the same interface, among those that
// are owed; nil where there is none that may be used.
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

// inherit goes on with a lease that the node has kept, where no controller answers;
// why is what they say.
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
		return vdn.Lease{}, c.refused(why) // it is another's by now
	}
	lease.Attachment.ID, lease.Attachment.Container, lease.Attachment.Owner = c.id(), c.container, c.pod.owner
	n := c.note()
	n.Lease, n.Replaces = &lease, append([]string{debt.ID}, debt.Replaces...)
	if err := c.notes.write(attached, n); err != nil {
		return vdn.Lease{}, err
	}
	c.say("no controller answers (%v): it goes on with the lease of %s", why, debt.ID)
	return lease, c.notes.remove(owed, debt.ID) // what is named by a note is not paid before
}

// inherited says whether this call's attachment goes on with a lease that no controller
// knows it by.
func (c *call) inherited() *note {
	if n := c.notes.read(attached, c.id()); n != nil && len(n.Replaces) > 0 {
		return n
	}
	return nil
}

// adopted has the node's daemon enforce it. A node without the daemon enforces nothing.
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
	asker := node.Asker(node.Socket)
	defer asker.CloseIdleConnections()
	answer, err := asker.Do(request)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fail(types.ErrTryAgainLater, "%v", c.deaf(err))
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusNoContent {
		said, _ := io.ReadAll(io.LimitReader(answer.Body, 4096)) // says what it can
		return fail(types.ErrTryAgainLater, "%v", c.deaf(fmt.Errorf("%s: %s", answer.Status, said)))
	}
	return nil
}

// handOver has leases that go on under another container's name bear it at the
// controller. It says whether one answers.
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
			c.say("the controller does not take that %s goes on with its lease: delete its pod: %v", a.ID, err)
			continue
		}
		n.Replaces = nil
		if err := c.notes.write(attached, n); err != nil {
			c.say("%v", err)
		}
	}
	return true
}

// named are all IDs that notes of attachments go by, the former ones among them: none of
// them may be paid or collected.
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
