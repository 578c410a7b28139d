package wire

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
)

var (
	us   = MAC{2, 0, 0, 0, 0, 1}
	them = MAC{2, 0, 0, 0, 0, 2}
	vip4 = netip.MustParseAddr("10.1.1.1")
	vip6 = netip.MustParseAddr("fd00:1::1:2:3")
	who4 = netip.MustParseAddr("10.1.1.9")
	who6 = netip.MustParseAddr("fe80::9")
)

func equal(t *testing.T, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// words formats a frame as parsed by another implementation, including the checksum.
func words(t *testing.T, frame []byte) string {
	t.Helper()
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	if e := p.ErrorLayer(); e != nil {
		t.Fatalf("% x: %v", frame, e.Error())
	}
	var out []string
	for _, l := range p.Layers() {
		if l.LayerType() != gopacket.LayerTypePayload {
			out = append(out, gopacket.LayerString(l))
		}
	}
	return strings.Join(out, "\n")
}

func TestFramesAsOthersReadThem(t *testing.T) {
	request := Message{Target: vip4, Sender: who4, Asks: true, From: them}
	solicitation := Message{Target: vip6, Sender: who6, Asks: true, From: them}
	for name, c := range map[string]struct {
		frame []byte
		want  []string
	}{
		"ARP probe":        {Probe(vip4, us), []string{"DstMAC=ff:ff:ff:ff:ff:ff", "Operation=1", "SourceProtAddress=[0, 0, 0, 0]", "DstProtAddress=[10, 1, 1, 1]"}},
		"ARP announcement": {Announce(vip4, us)[0], []string{"DstMAC=ff:ff:ff:ff:ff:ff", "Operation=1", "SourceProtAddress=[10, 1, 1, 1]", "DstProtAddress=[10, 1, 1, 1]"}},
		"ARP reply to all": {Announce(vip4, us)[1], []string{"DstMAC=ff:ff:ff:ff:ff:ff", "Operation=2", "SourceProtAddress=[10, 1, 1, 1]"}},
		"ARP answer":       {Answer(request, us), []string{"DstMAC=02:00:00:00:00:02", "SrcMAC=02:00:00:00:00:01", "Operation=2", "DstProtAddress=[10, 1, 1, 9]"}},
		"NDP probe":        {Probe(vip6, us), []string{"DstMAC=33:33:ff:02:00:03", "SrcIP=::", "DstIP=ff02::1:ff02:3", "HopLimit=255", "NeighborSolicitation", "TargetAddress=fd00:1::1:2:3", "Options=[]"}},
		"NDP announcement": {Announce(vip6, us)[0], []string{"DstMAC=33:33:00:00:00:01", "DstIP=ff02::1", "Flags=32", "TargetAddress:02:00:00:00:00:01"}},
		"NDP answer":       {Answer(solicitation, us), []string{"DstMAC=02:00:00:00:00:02", "SrcIP=fd00:1::1:2:3", "DstIP=fe80::9", "Flags=96"}},
	} {
		got := words(t, c.frame)
		for _, w := range c.want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: no %s in\n%s", name, w, got)
			}
		}
	}
}

// What is written can be parsed with the same meaning.
func TestParse(t *testing.T) {
	request := Message{Target: vip4, Sender: who4, Asks: true, From: us}
	solicitation := Message{Target: vip6, Sender: who6, Asks: true, From: us}
	asked := icmp(multicastMAC(SolicitedNode(vip6)), us, who6, SolicitedNode(vip6), neighborSolicitation, 0, vip6, append([]byte{optionSourceMAC, 1}, us[:]...))
	for _, c := range []struct {
		frame []byte
		want  Message
	}{
		{arp(Broadcast, arpRequest, us, who4, MAC{}, vip4), request},
		{Probe(vip4, us), Message{Target: vip4, Asks: true, From: us}},
		{Announce(vip4, us)[0], Message{Target: vip4, Sender: vip4, From: us}},
		{Announce(vip4, us)[1], Message{Target: vip4, Sender: vip4, From: us}},
		{Answer(request, us), Message{Target: vip4, Sender: vip4, From: us}},
		{asked, solicitation},
		{Probe(vip6, us), Message{Target: vip6, Asks: true, From: us}},
		{Announce(vip6, us)[0], Message{Target: vip6, Sender: vip6, From: us}},
		{Answer(solicitation, us), Message{Target: vip6, Sender: vip6, From: us}},
	} {
		got, err := Parse(c.frame)
		if err != nil {
			t.Errorf("% x: %v", c.frame, err)
		}
		equal(t, got, c.want)
	}
}

func TestParseRefuses(t *testing.T) {
	spoil := func(frame []byte, at int, b byte) []byte {
		frame = slices.Clone(frame)
		frame[at] = b
		return frame
	}
	probe, na := Probe(vip6, us), Announce(vip6, us)[0]
	noLength := append([]byte{optionTargetMAC, 0}, us[:]...)
	for want, frame := range map[string][]byte{
		"no Ethernet frame":           {1, 2, 3},
		"neither ARP nor":             spoil(Probe(vip4, us), 12, 9),
		"ARP of 10 bytes":             Probe(vip4, us)[:24],
		"which is no host's":          arp(Broadcast, arpRequest, Broadcast, who4, MAC{}, vip4),
		"truncated IPv6 header":       na[:30],
		"in a frame of":               na[:len(na)-1],
		"it came through a router":    spoil(na, 14+7, 254),
		"code 1":                      spoil(na, 14+40+1, 1),
		"checksum":                    spoil(na, 14+40+9, 1),
		"an option has an invalid":    icmp(allNodesMAC, us, vip6, allNodes, neighborAdvertise, 0, vip6, noLength),
		"the target is a group":       icmp(allNodesMAC, us, vip6, allNodes, neighborAdvertise, 0, allNodes, nil),
		"a probe with an address":     icmp(allNodesMAC, us, netip.IPv6Unspecified(), SolicitedNode(vip6), neighborSolicitation, 0, vip6, append([]byte{optionSourceMAC, 1}, us[:]...)),
		"a probe with an address, or": icmp(allNodesMAC, us, netip.IPv6Unspecified(), vip6, neighborSolicitation, 0, vip6, nil),
		"neither ARP nor a neighbor'": spoil(probe, 14+40, 128), // echo
	} {
		if m, err := Parse(frame); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v, %v; want %q", m, err, want)
		}
	}
}

func hello() Hello {
	return Hello{
		Hold: 900 * time.Millisecond, Mine: 1, Yours: 2, Sequence: 3, First: LowestAddress, Last: HighestAddress,
		MACs: []MAC{us, them}, Offers: []Offer{{vip4, true}, {who4, false}, {vip6, true}},
	}
}

func TestHello(t *testing.T) {
	for _, key := range [][]byte{nil, []byte("secret")} {
		b := hello().Marshal(key, who4, who6)
		got, err := ParseHello(b, key, who4, who6)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, got, hello())
	}
	full := hello()
	full.Offers, full.MACs = nil, make([]MAC, maxMACs)
	for i := range MaxOffers {
		full.Offers = append(full.Offers, Offer{Address: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})})
	}
	if b := full.Marshal([]byte("secret"), who4, who6); len(b) > 1232 { // the minimum MTU of IPv6, without headers
		t.Errorf("a full hello has %d bytes", len(b))
	}
}

func TestHelloRefuses(t *testing.T) {
	key := []byte("secret")
	plain, signed := hello().Marshal(nil, who4, who6), hello().Marshal(key, who4, who6)
	disorder := hello()
	slices.Reverse(disorder.Offers)
	outside := hello()
	outside.Last = vip4
	version := slices.Clone(plain)
	version[4] = 2
	for _, c := range []struct {
		want string
		b    []byte
		key  []byte
		to   netip.Addr
	}{
		{"no hello", []byte("GET / HTTP/1.1"), nil, who6},
		{"only 1 is known", version, nil, who6},
		{"is not signed", plain, key, who6},
		{"no password is configured", signed, nil, who6},
		{"another password", signed, []byte("guess"), who6},
		{"another password", signed, key, who4}, // sent to another receiver
		{"truncated hello", signed[:helloHead+5], key, who6},
		{"inconsistent lengths", plain[:len(plain)-1], nil, who6},
		{"not in order", disorder.Marshal(nil, who4, who6), nil, who6},
		{"not in order", outside.Marshal(nil, who4, who6), nil, who6},
	} {
		if _, err := ParseHello(c.b, c.key, who4, c.to); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// FuzzParse checks that no frame causes a panic, and that a frame that is understood can
// be answered with one that is understood.
func FuzzParse(f *testing.F) {
	for _, vip := range []netip.Addr{vip4, vip6} {
		f.Add(Probe(vip, us))
		for _, frame := range Announce(vip, us) {
			f.Add(frame)
		}
	}
	f.Add(arp(Broadcast, arpRequest, us, who4, MAC{}, vip4))
	f.Fuzz(func(t *testing.T, frame []byte) {
		fuzzlimit.Time(t)
		m, err := Parse(frame)
		if err != nil || !m.Asks {
			return
		}
		answer, err := Parse(Answer(m, them))
		if err != nil || answer.Asks || answer.Target != m.Target || answer.From != them {
			t.Errorf("%+v is answered by %+v, %v", m, answer, err)
		}
	})
}

// FuzzHello checks that an accepted hello marshals to the same bytes.
func FuzzHello(f *testing.F) {
	key := []byte("secret")
	f.Add(hello().Marshal(nil, who4, who6))
	f.Add(hello().Marshal(key, who4, who6))
	f.Fuzz(func(t *testing.T, b []byte) {
		fuzzlimit.Time(t)
		if _, err := ParseHello(b, key, who4, who6); err == nil && !bytes.Equal(b, hello().Marshal(key, who4, who6)) {
			t.Errorf("% x is taken as signed", b)
		}
		h, err := ParseHello(b, nil, who4, who6)
		if err != nil {
			return
		}
		again := h.Marshal(nil, who4, who6)
		if b[5] == 0 && !bytes.Equal(again, b) {
			t.Errorf("%+v is % x, was % x", h, again, b)
		}
	})
}
