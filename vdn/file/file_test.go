package file

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
	"github.com/fairlead/fairlead/vdn"
)

const good = `networks:
- name: science
  devices: [eth1]
  subnets:
  - cidr: 10.1.0.0/24
    gateway: 10.1.0.1
  - cidr: fd00:1::/64
  guaranteedRate: 400M
  mtu: 1400
  dns: {nameservers: [10.1.0.2]}
---
peers:
- domain: busan.example
  url: https://vdn.busan.example:7474
  nextHops: [192.0.2.1]
`

func TestAFileIsRead(t *testing.T) {
	items, err := Read("a.yaml", []byte(good))
	if err != nil || len(items) != 2 {
		t.Fatalf("%v, %v", items, err)
	}
	n, p := items[0].Network, items[1].Peer
	if n.Name != "science" || n.GuaranteedRate != 400e6 || n.MTU != 1400 || n.Subnets[0].Gateway.String() != "10.1.0.1" || len(n.DNS.Nameservers) != 1 || p.Domain != "busan.example" {
		t.Errorf("%+v, %+v", n, p)
	}
	if err := items[0].Where(&vdn.Problem{Object: items[0].Object(), Text: "no"}); err.Error() != "a.yaml:2: network science: no" {
		t.Errorf("got %v", err)
	}
	if items, err = Read("a.json", []byte(`{"networks": [{"name": "a", "devices": ["e"], "subnets": [{"cidr": "10.0.0.0/24"}], "maxRate": 1000}]}`)); err != nil || items[0].Network.MaxRate != 1000 {
		t.Errorf("%v, %v", items, err)
	}
}

func TestWhatIsWrongHasItsLine(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"guaranteedRate: 400M", "guaranteedRat: 400M", `a.yaml:8: network science, guaranteedRat: not known; did you mean "guaranteedRate"?: use `},
		{"guaranteedRate: 400M", "guaranteedRate: 400MB", `a.yaml:8: network science, guaranteedRate: the text "400MB" cannot be there: rate "400MB": want bit/s like 400M`},
		{"guaranteedRate: 400M", "maxRate: 1M\n  guaranteedRate: 2M", `a.yaml:9: network science, guaranteedRate: 2M exceeds maxRate (1M)`},
		{"10.1.0.1\n", "10.2.0.1\n", `a.yaml:6: network science, subnets[0].gateway: 10.2.0.1 is outside 10.1.0.0/24`},
		{"10.1.0.0/24", "10.1.0.0/33", `a.yaml:5: network science, subnets[0].cidr: the text "10.1.0.0/33" cannot be there: `},
		{"  devices: [eth1]\n", "", `a.yaml:2: network science, devices: there is none`},
		{"devices: [eth1]", "devices: eth1", `a.yaml:3: network science, devices: want a list, got the text "eth1"`},
		{"mtu: 1400", "mtu: much", `a.yaml:9: network science, mtu: the text "much" cannot be there`},
		{"mtu: 1400", "mtu: 1400\n  mtu: 1500", `a.yaml:10: network science, mtu: it is there twice`},
		{"mtu: 1400", "mtu:", `a.yaml:9: network science, mtu: want one word, got nothing`},
		{"mtu: 1400", "mtu: &m 1400\n  maxRate: *m", `a.yaml:10: network science, maxRate: aliases are not read`},
		{"url: https", "url: http", `a.yaml:14: peer busan.example, url: "http://vdn.busan.example:7474" is not where`},
		{"peers:", "peer:", `a.yaml:12: file, peer: not known; did you mean "peers"?: use networks, peers`},
		{"  nextHops: [192.0.2.1]\n", "  nextHops: [192.0.2.1]\n- domain: busan.example\n", `a.yaml:16: peer busan.example: it is there already, in line 13`},
		{good, "[]", `a.yaml:1: file: want fields, got a list`},
		{good, "networks: []", `a.yaml:1: there are neither networks nor peers in it`},
		{good, "networks: {}", `a.yaml:1: file, networks: want a list, got fields`},
		{good, "networks: [3]", `a.yaml:1: network: want fields, got the number 3`},
		{good, "a: [", `a.yaml:1: not valid YAML`},
	} {
		text := strings.Replace(good, c.old, c.new, 1)
		if items, err := Read("a.yaml", []byte(text)); err == nil || items != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s for %s:\n got %v\nwant %s", c.new, c.old, err, c.want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add("a.yaml", []byte(good))
	f.Add("a.json", []byte(`{"networks": [{"name": "a"}]}`))
	f.Fuzz(func(t *testing.T, name string, text []byte) {
		fuzzlimit.Time(t)
		items, err := Read(name, text)
		if (err == nil) != (len(items) > 0) {
			t.Fatalf("%d items, %v", len(items), err)
		}
		for _, i := range items {
			if i.Network != nil && i.Network.Validate() != nil || i.Peer != nil && i.Peer.Validate() != nil {
				t.Fatalf("%s is taken", i.Object())
			}
		}
	})
}
