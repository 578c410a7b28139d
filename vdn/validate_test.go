package vdn

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
)

// science is a valid network.
func science() Network {
	return Network{
		Name: "science", Devices: []string{"eth1"},
		Subnets: []Subnet{{
			CIDR: netip.MustParsePrefix("10.1.0.0/24"), Gateway: netip.MustParseAddr("10.1.0.1"),
			Ranges:   []Range{{netip.MustParseAddr("10.1.0.10"), netip.MustParseAddr("10.1.0.19")}},
			Reserved: []Reservation{{netip.MustParseAddr("10.1.0.5"), "lab/store"}},
		}, {CIDR: netip.MustParsePrefix("fd00:1::/64")}},
		GuaranteedRate: 400e6, MaxRate: 1e9,
	}
}

// broken decodes a network that differs from science by a JSON object.
func broken(t *testing.T, change string) Network {
	t.Helper()
	n := science()
	if err := json.Unmarshal([]byte(change), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestNetworkErrorsNameFieldAndFix(t *testing.T) {
	for _, c := range []struct{ change, want string }{
		{`{"name": "Science"}`, `network Science, name: "Science" is not a DNS label: use up to 63 lowercase`},
		{`{"name": ""}`, `network , name: "" is not a DNS label`},
		{`{"mode": "bridge"}`, `mode: "bridge" is not a mode: use macvlan or host-device`},
		{`{"devices": []}`, `devices: is required: list`},
		{`{"devices": ["eth1", "eth1"]}`, `devices[1]: "eth1" is duplicated: remove one`},
		{`{"devices": ["a/b"]}`, `devices[0]: "a/b" is not a device name`},
		{`{"devices": ["averyveryverylongname"]}`, `is not a device name`},
		{`{"subnets": []}`, `subnets: is required`},
		{`{"subnets": [{"cidr": "10.1.0.1/24"}]}`, `subnets[0].cidr: 10.1.0.1/24 has host bits set: use 10.1.0.0/24`},
		{`{"subnets": [{"cidr": "::ffff:10.1.0.0/120"}]}`, `subnets[0].cidr: ::ffff:10.1.0.0/120 is an IPv4-mapped IPv6 prefix`},
		{`{"subnets": [{"cidr": "0.0.0.0/0"}]}`, `does not contain host addresses`},
		{`{"subnets": [{"cidr": "224.0.0.0/8"}]}`, `does not contain host addresses`},
		{`{"subnets": [{"cidr": "fe80::/64"}]}`, `does not contain host addresses`},
		{`{"subnets": [{"cidr": "10.1.0.0/24"}, {"cidr": "10.2.0.0/24"}]}`, `subnets[1].cidr: 10.2.0.0/24 is the second subnet of its family, after 10.1.0.0/24`},
		{`{"subnets": [{"cidr": "10.1.0.0/32"}]}`, `subnets[0]: 10.1.0.0/32 has no address to lease`},
		{`{"subnets": [{"cidr": "10.1.0.0/30", "ranges": [{"first": "10.1.0.1", "last": "10.1.0.1"}], "gateway": "10.1.0.1"}]}`, `has no address to lease`},
		{`{"subnets": [{"cidr": "10.1.0.0/24", "gateway": "10.2.0.1"}]}`, `subnets[0].gateway: 10.2.0.1 is outside of 10.1.0.0/24`},
		{`{"subnets": [{"cidr": "10.1.0.0/24", "gateway": "::ffff:10.1.0.1"}]}`, `subnets[0].gateway: ::ffff:10.1.0.1 is an IPv4-mapped IPv6 address: use 10.1.0.1`},
		{`{"subnets": [{"cidr": "10.1.0.0/24", "ranges": [{"first": "10.1.0.9", "last": "10.1.1.9"}]}]}`, `subnets[0].ranges[0].last: 10.1.1.9 is outside of 10.1.0.0/24`},
		{`{"subnets": [{"cidr": "10.1.0.0/24", "ranges": [{"first": "10.1.0.9", "last": "10.1.0.3"}]}]}`, `ranges[0]: 10.1.0.9 is after 10.1.0.3`},
		{`{"subnets": [{"cidr": "10.1.0.0/24", "ranges": [{"first": "10.1.0.0", "last": "10.1.0.3"}]}]}`, `10.1.0.0 is the network address of 10.1.0.0/24`},
		{`{"subnets": [{"cidr": "10.1.0.0/24", "ranges": [{"first": "10.1.0.7", "last": "10.1.0.255"}]}]}`, `10.1.0.255 is the broadcast address`},
		{`{"subnets": [{"cidr": "10.1.0.0/24", "ranges": [{"first": "10.1.0.3", "last": "10.1.0.9"}, {"first": "10.1.0.9", "last": "10.1.0.12"}]}]}`, `ranges[1]: 10.1.0.9 to 10.1.0.12 overlaps 10.1.0.3 to 10.1.0.9`},
		{`{"subnets": [{"cidr": "10.1.0.0/24", "ranges": [{"last": "10.1.0.9"}]}]}`, `ranges[0].first: is required`},
		{`{"subnets": [{"cidr": "fe80::%eth0/64"}]}`, `no`},
		{`{"subnets": [{"cidr": "10.1.0.0/24", "reserved": [{"address": "10.1.0.9"}]}]}`, `reserved[0].owner: is missing`},
		{`{"subnets": [{"cidr": "10.1.0.0/24", "gateway": "10.1.0.9", "reserved": [{"address": "10.1.0.9", "owner": "a/b"}]}]}`, `reserved[0].address: 10.1.0.9 is the gateway`},
		{`{"subnets": [{"cidr": "10.1.0.0/24", "reserved": [{"address": "10.1.0.9", "owner": "a/b"}, {"address": "10.1.0.9", "owner": "c/d"}]}]}`, `reserved[1].address: 10.1.0.9 is already reserved for a/b`},
		{`{"mtu": 1000}`, `mtu: 1000 is out of range: use 1280 to 65535`},
		{`{"mtu": -1}`, `mtu: -1 is out of range`},
		{`{"guaranteedRate": "2G"}`, `guaranteedRate: 2G exceeds maxRate (1G)`},
		{`{"routes": [{"dst": "10.9.0.1/16"}]}`, `routes[0].dst: 10.9.0.1/16 has host bits set`},
		{`{"routes": [{"dst": "10.9.0.0/16", "gw": "10.2.0.1"}]}`, `routes[0].gw: 10.2.0.1 is outside of 10.1.0.0/24`},
		{`{"routes": [{"dst": "fd09::/64"}]}`, `routes[0].gw: is required, because subnet fd00:1::/64 has no gateway`},
		{`{"peerNetworks": ["science"]}`, `peerNetworks[0]: science is the network itself`},
		{`{"peerNetworks": ["a", "a"]}`, `peerNetworks[1]: "a" is duplicated`},
		{`{"peerNetworks": ["a/b/c"]}`, `peerNetworks[0]: "a/b/c" is not a network`},
		{`{"allowedCIDRs": ["10.0.0.1/8"]}`, `allowedCIDRs[0]: 10.0.0.1/8 has host bits set`},
		{`{"sharedWith": ["Busan"]}`, `sharedWith[0]: "Busan" is not a domain`},
		{`{"dns": {"nameservers": ["0.0.0.0"]}}`, `dns.nameservers[0]: 0.0.0.0 is not a unicast host address`},
	} {
		n := science()
		if strings.Contains(c.change, "subnets") {
			n.Subnets = nil // otherwise decoding retains the other fields
		}
		err := json.Unmarshal([]byte(c.change), &n)
		if err == nil {
			err = n.Validate()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\n got %v\nwant %s", c.change, err, c.want)
		}
	}
	if err := science().Validate(); err != nil {
		t.Errorf("what is right is refused: %v", err)
	}
}

// TestAllErrorsAreReportedTogether checks that all errors are reported and that each can be
// found.
func TestAllErrorsAreReportedTogether(t *testing.T) {
	err := broken(t, `{"mode": "x", "mtu": 3}`).Validate()
	var p *Problem
	if !errors.As(err, &p) || p.Field != "mode" || !strings.Contains(err.Error(), "; network science, mtu: ") {
		t.Errorf("got %v", err)
	}
	if kind, ok := KindOf(err); !ok || kind != Invalid {
		t.Errorf("its kind is %v, %v", kind, ok)
	}
}

func TestPeersRequestsAndReportsAreRefused(t *testing.T) {
	good := AttachmentRequest{Network: "science", Node: "n1", Container: "c1", Interface: "net1"}
	goodPeer := Peer{Domain: "busan.example", URL: "https://10.0.0.1:7474", NextHops: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}
	goodNode := NodeReport{Node: Node{Name: "n1", Means: "kernel", Uplinks: []Uplink{{"eth1", 1e9}}}}
	request := func(change func(*AttachmentRequest)) error {
		r := good
		change(&r)
		return r.Validate()
	}
	peer := func(change func(*Peer)) error {
		p := goodPeer
		change(&p)
		return p.Validate()
	}
	node := func(change func(*NodeReport)) error {
		n := goodNode
		change(&n)
		return n.Validate()
	}
	a := netip.MustParseAddr
	for want, err := range map[string]error{
		`attachment c1.net1, node: "" is not a node name`:            request(func(r *AttachmentRequest) { r.Node = "" }),
		`container: "../x" is not a container ID`:                    request(func(r *AttachmentRequest) { r.Container = "../x" }),
		`interface: "" is not a device name`:                         request(func(r *AttachmentRequest) { r.Interface = "" }),
		`network: "S" is not a DNS label`:                            request(func(r *AttachmentRequest) { r.Network = "S" }),
		`owner: is too long or not printable`:                        request(func(r *AttachmentRequest) { r.Owner = "a\nb" }),
		`addresses[1]: 10.1.0.3 is the second address of its family`: request(func(r *AttachmentRequest) { r.Addresses = []netip.Addr{a("10.1.0.2"), a("10.1.0.3")} }),
		`addresses[0]: fe80::1%eth0 has a zone: use fe80::1`:         request(func(r *AttachmentRequest) { r.Addresses = []netip.Addr{a("fe80::1%eth0")} }),
		`peer BUSAN, domain: "BUSAN" is not a DNS name`:              peer(func(p *Peer) { p.Domain = "BUSAN" }),
		`url: "http://x" is not the URL of a controller`:             peer(func(p *Peer) { p.URL = "http://x" }),
		`nextHops: is required`:                                      peer(func(p *Peer) { p.NextHops = nil }),
		`nextHops[1]: 10.0.0.2 is the second address of its family`:  peer(func(p *Peer) { p.NextHops = []netip.Addr{a("10.0.0.1"), a("10.0.0.2")} }),
		`node n1, means: "magic" is not an enforcer`:                 node(func(n *NodeReport) { n.Means = "magic" }),
		`uplinks[0].rate: is 0`:                                      node(func(n *NodeReport) { n.Uplinks = []Uplink{{"eth1", 0}} }),
		`uplinks[1]: "eth1" is duplicated`:                           node(func(n *NodeReport) { n.Uplinks = []Uplink{{"eth1", 1}, {"eth1", 2}} }),
		`attachment c1.net1, mac: "x" is not a MAC address`:          UpReport{"eth1", "x", "/run/netns/a"}.Validate("c1.net1"),
		`attachment c1.net1, netns: "a" is not the path`:             UpReport{"eth1", "02:00:00:00:00:01", "a"}.Validate("c1.net1"),
		`attachment c1.net1, device: "" is not a device name`:        UpReport{"", "02:00:00:00:00:01", "/a"}.Validate("c1.net1"),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if err := errors.Join(good.Validate(), goodPeer.Validate(), goodNode.Validate(), UpReport{"eth1", "02:00:00:00:00:0A", "/run/netns/a"}.Validate("x")); err != nil {
		t.Errorf("what is right is refused: %v", err)
	}
}

func TestRates(t *testing.T) {
	for text, want := range map[string]Rate{`"400M"`: 400e6, `"1.5G"`: 1.5e9, `9600`: 9600, `"2k"`: 2000, `"1T"`: 1e12, `0`: 0} {
		var r Rate
		if err := json.Unmarshal([]byte(text), &r); err != nil || r != want {
			t.Errorf("%s: got %d, %v, want %d", text, r, err, want)
		}
	}
	for _, text := range []string{`"-1M"`, `"400Mb"`, `"M"`, `""`, `"NaN"`, `"Inf"`, `-1`, `"1e30G"`, `true`, `"0x10"`, `"0x1p4"`, `"+1M"`, `".5G"`, `null`} {
		var r Rate
		if err := json.Unmarshal([]byte(text), &r); err == nil {
			t.Errorf("%s: taken as %s", text, r)
		}
	}
}

func TestUnknownKeysAreRefusedByName(t *testing.T) {
	var n Network
	for text, want := range map[string]string{
		`{"name": "a", "guarante": "1M"}`: `guarante: unknown field`,
		`{"name": "a"} {}`:                `unexpected data after`,
		`{"name": 3}`:                     `name: unexpected JSON number`,
		`{"name": `:                       `truncated JSON`,
		``:                                `empty`,
		`{"maxRate": "fast"}`:             `rate "fast" is invalid: use bit/s`,
		`[]`:                              `unexpected JSON array`,
	} {
		if err := Decode([]byte(text), &n); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

func FuzzNetworkBodies(f *testing.F) {
	for _, seed := range []string{`{"name":"a","devices":["e"],"subnets":[{"cidr":"10.0.0.0/24","ranges":[{"first":"10.0.0.2","last":"10.0.0.9"}]}]}`, `{"maxRate":1e9}`, `[`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		fuzzlimit.Time(t)
		var n Network
		if Decode(body, &n) != nil || n.Validate() != nil {
			return
		}
		again, err := json.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		var same Network
		if err := Decode(again, &same); err != nil || same.Validate() != nil {
			t.Fatalf("%s is right, %s is not: %v", body, again, err)
		}
		for _, s := range n.Subnets {
			p := NewPool(s)
			if a, ok := p.Choose(""); ok && (!s.CIDR.Contains(a) || a == s.Gateway) {
				t.Fatalf("%s gives %s", body, a)
			}
		}
	})
}

// FuzzRate checks that a parsed rate survives a round trip.
func FuzzRate(f *testing.F) {
	for _, text := range []string{"400M", "1.5G", "9600", "0", "1e3M", "9.2T", "0.4", "M", "-1", "1_0", "0x1p4", "9223372036854775807", "1e400"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		fuzzlimit.Time(t)
		r, err := ParseRate(text)
		if err != nil {
			return
		}
		if again, err := ParseRate(r.String()); err != nil || again != r {
			t.Errorf("%q is %d, and %s is %d, %v", text, r, r, again, err)
		}
	})
}
