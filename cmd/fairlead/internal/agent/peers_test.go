package agent

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/advertise/bgp"
	"github.com/fairlead/fairlead/source/crd"
)

func TestMergePeers(t *testing.T) {
	peer := func(name, address string, change ...func(*crd.Peer)) crd.Peer {
		p := crd.Peer{Name: name, Address: netip.MustParseAddrPort(address), HoldTime: 9 * time.Second}
		for _, c := range change {
			c(&p)
		}
		return p
	}
	flag := bgp.PeerConfig{Address: netip.MustParseAddr("10.0.0.109"), AS: 65021, BFD: true}
	all := func(p *crd.Peer) { p.AS, p.BFD, p.Password = 65000, true, "sesame" }
	long := func(p *crd.Peer) { p.Password = strings.Repeat("x", 81) }
	got, problems := mergePeers([]bgp.PeerConfig{flag}, []crd.Peer{
		peer("a", "10.0.0.108:1179", all), peer("b", "10.0.0.109:179"), peer("c", "[2001:db8::1]:179"),
		peer("d", "10.0.0.108:179"), peer("e", "10.0.0.107:179", long), peer("f", "224.0.0.5:179"),
	})
	want := []bgp.PeerConfig{
		flag,
		{Name: "a", Address: netip.MustParseAddr("10.0.0.108"), Port: 1179, AS: 65000, Password: "sesame", HoldTime: 9 * time.Second, BFD: true},
		{Name: "c", Address: netip.MustParseAddr("2001:db8::1"), Port: 179, HoldTime: 9 * time.Second},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	for i, want := range []string{
		"BGPPeer b: spec.peerAddress: --peer has 10.0.0.109 already, and counts; this one is left out",
		"BGPPeer d: spec.peerAddress: BGPPeer a has 10.0.0.108 already, and counts; this one is left out",
		"BGPPeer e: peer.password: 81 bytes, TCP MD5 accepts at most 80; it is left out",
		"BGPPeer f: peer.address: 224.0.0.5 is not a valid neighbor address; it is left out",
	} {
		if i >= len(problems) || problems[i].String() != want {
			t.Errorf("problems %v lack %q", problems, want)
		}
	}
	if len(problems) != 4 {
		t.Errorf("%d problems: %v", len(problems), problems)
	}
}

func TestPeersWithoutSpeaker(t *testing.T) {
	a := &agent{}
	got := a.setPeers([]crd.Peer{{Name: "rack"}})
	if len(got) != 1 || !strings.Contains(got[0].String(), "BGPPeer rack: this node has no router ID") {
		t.Errorf("problems %v", got)
	}
	if got := a.setPeers(nil); got != nil {
		t.Errorf("problems %v without a peer", got)
	}
}
