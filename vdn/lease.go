package vdn

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Owners returns the attachment that has an address, or a node's device; "" if none has.
type Owners interface {
	HasAddress(netip.Addr) (attachment string)
	HasDevice(node, device string) (attachment string)
}

// ChooseAddresses chooses one address of each subnet for a request, with its prefix length.
// pools are those of the network's subnets.
func ChooseAddresses(n Network, pools []*Pool, r AttachmentRequest, owners Owners) ([]netip.Prefix, error) {
	object := "attachment " + r.ID()
	asked := slices.Clone(r.Addresses)
	var got []netip.Prefix
	for i, s := range n.Subnets {
		of := slices.IndexFunc(asked, func(a netip.Addr) bool { return a.Is4() == s.CIDR.Addr().Is4() })
		if of >= 0 {
			if err := mayHave(object, n, s, asked[of], r.Owner, owners); err != nil {
				return nil, err
			}
			got = append(got, netip.PrefixFrom(asked[of], s.CIDR.Bits()))
			asked = slices.Delete(asked, of, of+1)
			continue
		}
		a, ok := pools[i].Choose(r.Owner)
		if !ok {
			return nil, noneLeft(object, n, s, pools[i], r.Owner, owners)
		}
		got = append(got, netip.PrefixFrom(a, s.CIDR.Bits()))
	}
	if len(asked) > 0 {
		return nil, conflict(object, "addresses", "%s has an address family that %s has no subnet of: request another", asked[0], n.Object())
	}
	return got, nil
}

func mayHave(object string, n Network, s Subnet, a netip.Addr, owner string, owners Owners) error {
	const field = "addresses"
	if by := owners.HasAddress(a); by != "" {
		return conflict(object, field, "%s is in use by attachment %s: delete it, or request another address", a, by)
	}
	if s.holds(a, owner) {
		return nil
	}
	for _, r := range s.Reserved {
		if r.Address == a {
			return conflict(object, field, "%s is reserved for %s: request another address", a, r.Owner)
		}
	}
	return conflict(object, field, "%s is not leased by %s: request an address of its ranges in %s", a, n.Object(), s.CIDR)
}

func noneLeft(object string, n Network, s Subnet, p *Pool, owner string, owners Owners) error {
	for _, r := range s.Reserved {
		if r.Owner == owner && owner != "" {
			return conflict(object, "owner", "%s, reserved for %s, is in use by attachment %s: delete it first", r.Address, owner, owners.HasAddress(r.Address))
		}
	}
	if p.Free() > 0 {
		return conflict(object, "network", "the pool of %s in %s has only reserved addresses left: delete attachments, or extend its ranges", n.Object(), s.CIDR)
	}
	return conflict(object, "network", "the pool of %s in %s is exhausted: delete attachments, or extend its ranges", n.Object(), s.CIDR)
}

// ChooseDevice chooses the node's device for a request: for HostDevice one that is free,
// for Macvlan the first, or "" if the request names none.
func ChooseDevice(n Network, r AttachmentRequest, owners Owners) (string, error) {
	var taken []string
	for _, d := range n.Devices {
		if !slices.Contains(r.Devices, d) {
			continue
		}
		by := ""
		if n.Mode == HostDevice {
			by = owners.HasDevice(r.Node, d)
		}
		if by == "" {
			return d, nil
		}
		taken = append(taken, d+" is in use by attachment "+by)
	}
	if n.Mode != HostDevice && len(r.Devices) == 0 {
		return "", nil
	}
	why := "it has none of these devices"
	if len(taken) > 0 {
		why = strings.Join(taken, ", ")
	}
	return "", conflict("attachment "+r.ID(), "devices", "node %s has no free device of %s, which uses %s: %s; delete an attachment there, or add a device to the node",
		r.Node, n.Object(), strings.Join(n.Devices, ", "), why)
}

// Keeps returns an error if a changed network is incompatible with an existing attachment.
func (n Network) Keeps(a Attachment, before Network) error {
	if n.mode() != before.mode() {
		return conflict(n.Object(), "mode", "cannot change to %s while attachment %s exists: delete it first", n.mode(), a.ID)
	}
	for _, p := range a.Addresses {
		i := slices.IndexFunc(n.Subnets, func(s Subnet) bool { return s.CIDR == p.Masked() })
		if i < 0 {
			return conflict(n.Object(), "subnets", "%s is missing, in which attachment %s has %s: delete the attachment first, or keep the subnet", p.Masked(), a.ID, p.Addr())
		}
		s := n.Subnets[i]
		switch {
		case s.Gateway == p.Addr():
			return conflict(n.Object(), index("subnets", i)+".gateway", "%s is in use by attachment %s: delete it first, or use another address", p.Addr(), a.ID)
		case !s.mayStay(p.Addr()):
			return conflict(n.Object(), index("subnets", i)+".ranges", "%s, which attachment %s has, is in none of the ranges: delete the attachment first, or extend the ranges", p.Addr(), a.ID)
		}
	}
	if n.mode() == HostDevice && a.Device != "" && !slices.Contains(n.Devices, a.Device) {
		return conflict(n.Object(), "devices", "%s, which attachment %s has, is not in the list: delete the attachment first, or keep the device", a.Device, a.ID)
	}
	return nil
}

// mayStay reports whether a leased address may stay leased. An address that has since been
// reserved for another owner stays leased until it is released.
func (s Subnet) mayStay(a netip.Addr) bool {
	return inRanges(s.ranges(), a) || slices.ContainsFunc(s.Reserved, func(r Reservation) bool { return r.Address == a })
}

func (n Network) mode() Mode {
	if n.Mode == "" {
		return Macvlan
	}
	return n.Mode
}

// Has reports whether an attachment has an address.
func (a Attachment) Has(address netip.Addr) bool {
	return slices.ContainsFunc(a.Addresses, func(p netip.Prefix) bool { return p.Addr() == address })
}

// Continue returns the request that lets an attachment replace the first existing one of
// others.
func (a Attachment) Continue(replaces []string) AttachmentRequest {
	r := AttachmentRequest{
		Network: a.Network, Node: a.Node, Container: a.Container, Interface: a.Interface,
		Owner: a.Owner, OwnerUID: a.OwnerUID, Replaces: replaces,
	}
	for _, p := range a.Addresses {
		r.Addresses = append(r.Addresses, p.Addr())
	}
	if a.Device != "" {
		r.Devices = []string{a.Device}
	}
	return r
}

// SameRequest returns an error if a request is not the one that created an attachment.
func SameRequest(a Attachment, r AttachmentRequest) error {
	object := "attachment " + a.ID
	const fix = "delete it first, or use another interface"
	switch {
	case a.Container != r.Container:
		return conflict(object, "container", "belongs to container %s, not %s: %s", a.Container, r.Container, fix)
	case a.Network != r.Network:
		return conflict(object, "network", "is in network %s, not %s: %s", a.Network, r.Network, fix)
	case a.Node != r.Node:
		return conflict(object, "node", "is on node %s, not %s: %s", a.Node, r.Node, fix)
	}
	for _, asked := range r.Addresses {
		if !a.Has(asked) {
			return conflict(object, "addresses", "does not have address %s: %s", asked, fix)
		}
	}
	return nil
}

// MayReplace returns an error if a request may not replace an attachment.
func MayReplace(a Attachment, r AttachmentRequest) error {
	object, field := "attachment "+r.ID(), "replaces"
	switch {
	case a.Network != r.Network, a.Node != r.Node, a.Interface != r.Interface:
		return conflict(object, field, "%s is interface %s in network %s on node %s: list attachments of the same interface, network and node", a.ID, a.Interface, a.Network, a.Node)
	case a.OwnerUID != r.OwnerUID:
		return conflict(object, field, "%s belongs to another pod: remove it from the list", a.ID)
	}
	for _, asked := range r.Addresses {
		if !a.Has(asked) {
			return conflict(object, field, "%s does not have address %s: request its addresses, or remove it from the list", a.ID, asked)
		}
	}
	return nil
}

// MayBeUp returns an error if a node's report contradicts the lease.
func MayBeUp(n Network, a Attachment, u UpReport) error {
	if n.mode() == HostDevice && a.Device != u.Device {
		return conflict("attachment "+a.ID, "device", "the leased device is %s, not %s: use the leased device", a.Device, u.Device)
	}
	return nil
}

// InUse returns the Problem of an object that cannot be deleted yet.
func InUse(object string, attachments []string) error {
	const most = 3
	names := strings.Join(attachments[:min(most, len(attachments))], ", ")
	if more := len(attachments) - most; more > 0 {
		names += " and " + strconv.Itoa(more) + " more"
	}
	return conflict(object, "", "has attachments: delete %s first", names)
}
