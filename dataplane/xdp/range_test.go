package xdp

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
)

func ranged(first, last uint16, protocol service.Protocol, server string) desired.Frontend {
	f := frontend(service.Tunnel, netip.AddrPortFrom(netip.MustParseAddr("10.1.1.1"), first).String(), protocol, server)
	f.Last = last
	return f
}

// rangesOf reads a VIP's ranges from the kernel.
func rangesOf(t *testing.T, d *DataPlane, vip string) string {
	t.Helper()
	var whole bpf.BalancerFrontend
	must(t, d.kernel.Frontends.Lookup(entry.ToKey(entry.Whole(netip.MustParseAddr(vip))), &whole))
	var all []string
	for i := range whole.Ranges {
		var r bpf.BalancerPortRange
		must(t, d.kernel.PortRanges.Lookup(whole.Range+i, &r))
		all = append(all, fmt.Sprintf("%s %d-%d", service.Protocol(r.Proto), r.First, r.Last))
	}
	return strings.Join(all, ", ")
}

func TestRangesAndWholeAddress(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	port := frontend(service.Tunnel, "10.1.1.1:80", service.TCP, "172.16.5.80:80")
	all := []desired.Frontend{
		ranged(0, 65535, service.TCP, "172.16.5.3:0"), ranged(8000, 8999, service.TCP, "172.16.5.2:0"),
		ranged(70, 90, service.TCP, "172.16.5.1:0"), ranged(70, 70, service.UDP, "172.16.5.4:9"),
		ranged(0, 65535, service.AnyProtocol, "172.16.5.5:0"), port,
	}
	for i, f := range all {
		upsert(t, d, f)
		if i == 2 {
			d = n.reopen(t, d)
		}
	}
	if got, want := rangesOf(t, d, "10.1.1.1"), "UDP 70-70, TCP 70-90, TCP 8000-8999, TCP 0-65535"; got != want {
		t.Errorf("ranges are %s, want %s", got, want)
	}
	served := func() string {
		var got []string
		for _, to := range []string{"10.1.1.1:80", "10.1.1.1:70", "10.1.1.1:91", "10.1.1.1:8999", "10.1.1.1:9000"} {
			for _, udp := range []bool{false, true} {
				v, out := n.run(t, d, packet{src: clients[false], dst: to, udp: udp, flags: "S"}.bytes(t))
				got = append(got, fmt.Sprintf("%v.%d", v, out[33]))
			}
		}
		return strings.Join(got, " ")
	}
	const want = "redirect.80 redirect.5 redirect.1 redirect.4 redirect.3 redirect.5 redirect.2 redirect.5 redirect.3 redirect.5"
	if got := served(); got != want {
		t.Errorf("served\n by %s, want\n %s", got, want)
	}
	// Repeated, changed, and after a restart.
	d = n.reopen(t, d)
	programmed := listed(t, d)
	for _, f := range all {
		upsert(t, d, f)
		wider := f
		wider.RingSize = 509
		upsert(t, d, wider)
		upsert(t, d, f)
	}
	if got := listed(t, d); got != programmed {
		t.Errorf("lists\n %s\nprogrammed\n %s", got, programmed)
	}
	if got := served(); got != want {
		t.Errorf("served\n by %s, want\n %s", got, want)
	}
	for i, f := range all {
		must(t, d.Delete(f.Key))
		if got := strings.Contains(listed(t, d), f.Key.String()+" "); got {
			t.Errorf("%s is still listed", f.Key)
		}
		if i == 0 {
			v, _ := n.run(t, d, packet{src: clients[false], dst: "10.1.1.1:9000", flags: "S"}.bytes(t))
			if v != redirect { // matches the whole address
				t.Errorf("behind the ranges: %v", v)
			}
		}
	}
	if got := state(t, d); got != " VIPs 0 bits 2 servers 0 members 0 slots 0 ranges 0" {
		t.Errorf("left: %s", got)
	}
}

// A VIP may have as many ranges as the maximum of frontends, however often they are
// written again.
func TestRangesAreWrittenAside(t *testing.T) {
	n := newNet(t)
	c := config()
	c.MaxFrontends = 4
	d := n.open(t, c)
	for round := range 3 {
		for i := range uint16(4) {
			f := ranged(100*(i+1), 100*(i+1)+9, service.TCP, "172.16.5.1:0")
			upsert(t, d, f)
			f.RingSize = 509
			upsert(t, d, f)
		}
		if got, want := rangesOf(t, d, "10.1.1.1"), "TCP 100-109, TCP 200-209, TCP 300-309, TCP 400-409"; got != want {
			t.Errorf("round %d: %s, want %s", round, got, want)
		}
	}
}
