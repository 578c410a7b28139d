package vdn

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

func index(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

// Object names it in errors.
func (n Network) Object() string { return "network " + n.Name }

// Validate returns all errors of a network by itself (Problems).
func (n Network) Validate() error {
	c := &checker{object: n.Object()}
	if !label.MatchString(n.Name) {
		c.add("name", "%q is no DNS label: %s", n.Name, labelWords)
	}
	if n.Mode != "" && n.Mode != Macvlan && n.Mode != HostDevice {
		c.add("mode", "%q is none: use macvlan or host-device", n.Mode)
	}
	if len(n.Devices) == 0 {
		c.add("devices", "there is none: name the nodes' devices that the network is on, like eth1")
	}
	c.each("devices", n.Devices, isDevice, deviceWords)
	c.subnets(n)
	c.mtu(n)
	c.routes(n)
	c.dns(n.DNS)
	if n.MaxRate > 0 && n.GuaranteedRate > n.MaxRate {
		c.add("guaranteedRate", "%s exceeds maxRate (%s): raise maxRate or lower guaranteedRate", n.GuaranteedRate, n.MaxRate)
	}
	c.each("peerNetworks", n.PeerNetworks, isPeerNetwork, "is not a network: use NAME, or DOMAIN/NAME for a network of a federated domain")
	for i, r := range n.PeerNetworks {
		if r == n.Name {
			c.add(index("peerNetworks", i), "%s is the network itself, whose hosts can always communicate: remove it", r)
		}
	}
	for i, p := range n.AllowedCIDRs {
		c.prefix(index("allowedCIDRs", i), p)
	}
	c.each("sharedWith", n.SharedWith, IsDomain, "is not a domain: use its DNS name, such as busan.example")
	return c.err()
}

func isPeerNetwork(s string) bool {
	domain, name, federated := strings.Cut(s, "/")
	if !federated {
		return label.MatchString(s)
	}
	return IsDomain(domain) && label.MatchString(name)
}

// Minimum MTUs: RFC 791 (section 3.2), RFC 8200 (section 5).
const (
	minMTU4 = 68
	minMTU6 = 1280
	maxMTU  = 65535
)

func (c *checker) mtu(n Network) {
	least := minMTU4
	for _, s := range n.Subnets {
		if s.CIDR.Addr().Is6() {
			least = minMTU6
		}
	}
	if n.MTU != 0 && (n.MTU < least || n.MTU > maxMTU) {
		c.add("mtu", "%d is none that its addresses can have: use %d to %d, or 0 for the devices' own", n.MTU, least, maxMTU)
	}
}

func (c *checker) routes(n Network) {
	for i, r := range n.Routes {
		at := index("routes", i)
		if !c.prefix(at+".dst", r.Dst) {
			continue
		}
		s, there := n.subnetOf(r.Dst.Addr().Is4())
		gw := r.GW
		switch {
		case !there:
			c.add(at+".dst", "the network has no subnet of the address family of %s: add a subnet, or remove the route", r.Dst)
		case !gw.IsValid() && !s.Gateway.IsValid():
			c.add(at+".gw", "is required, because subnet %s has no gateway: set one of them", s.CIDR)
		case gw.IsValid() && c.address(at+".gw", gw) && !s.CIDR.Contains(gw):
			c.add(at+".gw", "%s is outside of %s: use an address in the subnet", gw, s.CIDR)
		}
	}
}

// subnetOf returns the subnet of a family.
func (n Network) subnetOf(is4 bool) (Subnet, bool) {
	for _, s := range n.Subnets {
		if s.CIDR.Addr().Is4() == is4 {
			return s, true
		}
	}
	return Subnet{}, false
}

func (c *checker) dns(d DNS) {
	for i, a := range d.Nameservers {
		if at := index("dns.nameservers", i); !a.IsLoopback() {
			c.address(at, a)
		}
	}
	if d.Domain != "" && !isPrintable(d.Domain) {
		c.add("dns.domain", "%q is no domain: write a DNS name", d.Domain)
	}
	c.each("dns.search", d.Search, isText, "is no domain: write a DNS name")
	c.each("dns.options", d.Options, isText, "is no option: write one like ndots:2")
}

func isText(s string) bool { return s != "" && isPrintable(s) }

// Object names it in errors.
func (p Peer) Object() string { return "peer " + p.Domain }

// Validate returns all errors of a peer by itself (Problems).
func (p Peer) Validate() error {
	c := &checker{object: p.Object()}
	if !IsDomain(p.Domain) {
		c.add("domain", "%q is no DNS name: write the one in its certificate, like busan.example", p.Domain)
	}
	if u, err := url.Parse(p.URL); err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		c.add("url", "%q is not where a controller offers its networks: write one like https://vdn.busan.example:7474", p.URL)
	}
	if len(p.NextHops) == 0 {
		c.add("nextHops", "there is none: name its gateway's address")
	}
	var seen []netip.Addr
	for i, a := range p.NextHops {
		at := index("nextHops", i)
		if !c.address(at, a) {
			continue
		}
		for _, other := range seen {
			if other.Is4() == a.Is4() {
				c.add(at, "%s is the second of its family after %s: keep one", a, other)
			}
		}
		seen = append(seen, a)
	}
	return c.err()
}

// ID is CONTAINER.INTERFACE.
func (r AttachmentRequest) ID() string { return r.Container + "." + r.Interface }

// Validate returns all errors of a request by itself (Problems).
func (r AttachmentRequest) Validate() error {
	c := &checker{object: "attachment " + r.ID()}
	if !label.MatchString(r.Network) {
		c.add("network", "%q is no DNS label: %s", r.Network, labelWords)
	}
	c.node("node", r.Node)
	if !containerID.MatchString(r.Container) {
		c.add("container", "%q is no container's ID: want letters, digits and . _ -, beginning with a letter or digit", r.Container)
	}
	if !isDevice(r.Interface) {
		c.add("interface", "%q %s", r.Interface, deviceWords)
	}
	if !isPrintable(r.Owner) {
		c.add("owner", "it is too long or not to be read: write NAMESPACE/POD")
	}
	if !isPrintable(r.OwnerUID) {
		c.add("ownerUID", "it is too long or not to be read: write the pod's metadata.uid")
	}
	for i, a := range r.Addresses {
		at := index("addresses", i)
		if c.address(at, a) && i > 0 && r.Addresses[i-1].Is4() == a.Is4() {
			c.add(at, "%s is the second of its family: ask for one IPv4 and one IPv6 address at most", a)
		}
		if i > 1 {
			c.add(at, "there are %d: ask for one IPv4 and one IPv6 address at most", len(r.Addresses))
			break
		}
	}
	c.each("devices", r.Devices, isDevice, deviceWords)
	c.each("replaces", r.Replaces, isText, "is no attachment's ID: write CONTAINER.INTERFACE")
	if len(r.Replaces) > maxReplaces {
		c.add("replaces", "there are %d: name %d at most", len(r.Replaces), maxReplaces)
	}
	if len(r.Replaces) > 0 && r.OwnerUID == "" {
		c.add("ownerUID", "it is missing: only the same pod may continue an attachment")
	}
	return c.err()
}

// maxReplaces limits how many attachments one may have continued, most of which no
// controller knows.
const maxReplaces = 100

func (c *checker) node(field, name string) {
	if !nodeName.MatchString(name) {
		c.add(field, "%q is no node's name: want letters, digits and . _ -, like node-1", name)
	}
}

// Validate returns all errors of an up report (Problems).
func (u UpReport) Validate(id string) error {
	c := &checker{object: "attachment " + id}
	if !isDevice(u.Device) {
		c.add("device", "%q %s", u.Device, deviceWords)
	}
	if !macAddress.MatchString(strings.ToLower(u.MAC)) {
		c.add("mac", "%q is no MAC address: write one like 02:00:00:00:00:01", u.MAC)
	}
	if !strings.HasPrefix(u.NetNS, "/") || !isPrintable(u.NetNS) {
		c.add("netns", "%q is no path of a network namespace: write one like /run/netns/pod", u.NetNS)
	}
	return c.err()
}

// Object names it in errors.
func (n Node) Object() string { return "node " + n.Name }

// Validate returns all errors of a node's report by itself (Problems).
func (r NodeReport) Validate() error {
	c := &checker{object: r.Object()}
	c.node("name", r.Name)
	if r.Means != "kernel" && r.Means != "openvswitch" {
		c.add("means", "%q is none: use kernel or openvswitch", r.Means)
	}
	var devices []string
	for i, u := range r.Uplinks {
		devices = append(devices, u.Device)
		if u.Rate == 0 {
			c.add(index("uplinks", i)+".rate", "it is 0: write what %s carries, like 10G", u.Device)
		}
	}
	c.each("uplinks", devices, isDevice, deviceWords)
	return c.err()
}
