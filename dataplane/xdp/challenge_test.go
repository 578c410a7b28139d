package xdp

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/flowtable"
	"github.com/fairlead/fairlead/dataplane/xdp/synflood"
)

// With direct server return a SYN passes once its sender has answered a challenge, and no
// other source passes.
func TestChallenges(t *testing.T) {
	for _, method := range []service.Method{service.Tunnel, service.DSRNAT} {
		for _, survival := range []service.Survival{service.SecondChance, service.FlowTable, service.HashOnly} {
			for _, v6 := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, v6 %v", method, survival, v6), func(t *testing.T) {
					n := newNet(t)
					d := n.open(t, config())
					f := frontend(method, vips[v6], service.TCP, servers[v6])
					f.Survival = survival
					upsert(t, d, f)
					putUnderPressure(t, d, f.Key)
					client := netip.MustParseAddrPort(clients[v6])
					for isn := range uint32(3) {
						source := client.Addr()
						for range isn {
							source = source.Next()
						}
						// Numbers on both sides of the lower
						// half's wraparound.
						c := &cookieClient{t, n, d, netip.AddrPortFrom(source, 1000).String(), vips[v6], (isn + 1) << 16, nil}
						validate(t, c)
						for port := range uint16(synSourceSYNs) {
							from := netip.AddrPortFrom(source, 2000+port).String()
							_, out := n.run(t, d, tcpSeg{src: from, dst: vips[v6], tcp: layers.TCP{SYN: true, Seq: 5}}.frame(t))
							if len(out) < 60 || parsedOuter(out) != addrOf(servers[v6]) {
								t.Fatalf("SYN %d of a validated source does not reach the server: %x", port, out)
							}
						}
						c.src = netip.AddrPortFrom(source, 3000).String()
						validate(t, c) // it has used up its SYNs
					}
					counts := synCountsOf(t, d, f.Key)
					if counts.ChallengesSent != 6 || counts.ChallengesAnswered != 6 || counts.Admitted != 3*synSourceSYNs {
						t.Errorf("counted %+v", counts)
					}
				})
			}
		}
	}
}

// synSourceSYNs is SYN_SOURCE_SYNS.
const synSourceSYNs = 64

// parsedOuter returns the destination of a frame's first IP header.
func parsedOuter(frame []byte) string {
	if frame[14]>>4 == 6 {
		a, _ := netip.AddrFromSlice(frame[14+24 : 14+40])
		return a.String()
	}
	a, _ := netip.AddrFromSlice(frame[14+16 : 14+20])
	return a.String()
}

// A RST that answers no challenge belongs to the connection, and passes.
func TestOtherResetsPass(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	f := frontend(service.Tunnel, vips[false], service.TCP, servers[false])
	upsert(t, d, f)
	c := &cookieClient{t, n, d, clients[false], vips[false], 70000, nil}
	putUnderPressure(t, d, f.Key)
	challenge := c.send(tcpSeg{tcp: layers.TCP{SYN: true, Seq: c.isn}}, redirect).tcp.Ack
	for name, tcp := range map[string]layers.TCP{
		"another number": {RST: true, Seq: challenge + 1},
		"with ACK":       {RST: true, ACK: true, Seq: challenge},
	} {
		v, out := n.run(t, d, tcpSeg{src: c.src, dst: c.vip, tcp: tcp}.frame(t))
		if v != redirect || parsedOuter(out) != addrOf(servers[false]) {
			t.Errorf("%s: %v", name, v)
		}
	}
	later(t, d, 2*slotNS)
	if v, out := n.run(t, d, tcpSeg{src: c.src, dst: c.vip, tcp: layers.TCP{RST: true, Seq: challenge}}.frame(t)); v != redirect || parsedOuter(out) != addrOf(servers[false]) {
		t.Errorf("too late: %v", v)
	}
	if got := synCountsOf(t, d, f.Key); got.ChallengesAnswered != 0 {
		t.Errorf("counted %+v", got)
	}
}

// Known flows continue under pressure, and packets of unknown flows that open nothing are
// served without an entry in the flow table.
func TestKnownFlowsUnderPressure(t *testing.T) {
	for _, method := range []service.Method{service.Tunnel, service.FullNAT} {
		t.Run(string(method), func(t *testing.T) {
			w := newWorld(t, method, false)
			c := w.connect(t)
			was := c.open(opening)
			putUnderPressure(t, w.d, synTestKey)
			for _, s := range []tcpSegment{clientContinues, forgedSYN, clientContinues, clientFIN} {
				if method == service.FullNAT && s == forgedSYN {
					continue // its backend decides, as usual
				}
				if to := c.send(s); to != was {
					t.Errorf("%v goes to %v, not to %v", s, to, was)
				}
			}
			before, err := w.d.Remembered()
			must(t, err)
			for i := range 100 {
				v, _ := w.net.run(t, w.d, packet{src: clientOf(i), dst: vips[false], flags: "A"}.bytes(t))
				if method == service.Tunnel && v != redirect {
					t.Fatalf("an ACK of an unknown flow: %v", v)
				}
			}
			if after, err := w.d.Remembered(); err != nil || after != before {
				t.Errorf("%d flows are remembered, then %d: %v", before, after, err)
			}
		})
	}
}

// Packets that cannot be checked are dropped with a specific reason, and tags make no
// difference.
func TestOddPacketsUnderPressure(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	f := frontend(service.Tunnel, vips[false], service.TCP, servers[false])
	upsert(t, d, f)
	putUnderPressure(t, d, f.Key)
	syn := tcpSeg{src: clients[false], dst: vips[false], tcp: layers.TCP{SYN: true, Seq: 70000}}
	withOption := syn
	withOption.options4 = []layers.IPv4Option{{OptionType: 0x94, OptionLength: 4, OptionData: []byte{0, 0}}}
	if v, _ := n.run(t, d, withOption.frame(t)); v != drop || d.Describe().Drops["syn-odd"] != 1 {
		t.Errorf("a SYN with IP options: %v, %v", v, d.Describe().Drops)
	}
	tagged := syn
	tagged.vlan = 5
	back := n.exchangeSeg(t, d, tagged, redirect)
	if back.vlan != 5 || back.flags() != "SA" || back.dst != syn.src {
		t.Fatalf("a tagged SYN is answered by %s in VLAN %d to %s", back.flags(), back.vlan, back.dst)
	}
	rst := tagged
	rst.tcp = layers.TCP{RST: true, Seq: back.tcp.Ack}
	n.exchangeSeg(t, d, rst, drop)
	if v, _ := n.run(t, d, tagged.frame(t)); v != redirect {
		t.Errorf("the tagged SYN of a validated source: %v", v)
	}
	if got := synCountsOf(t, d, f.Key); got.Admitted != 1 || got.ChallengesAnswered != 1 {
		t.Errorf("counted %+v", got)
	}
}

// Impossible source addresses get no answer.
func TestMartiansAreNotAnswered(t *testing.T) {
	for _, method := range []service.Method{service.Tunnel, service.FullNAT} {
		n := newNet(t)
		d := n.open(t, config())
		f := frontend(method, vips[false], service.TCP, servers[false])
		upsert(t, d, f)
		putUnderPressure(t, d, f.Key)
		for _, src := range []string{"127.0.0.1:5", "224.0.0.1:5", "255.255.255.255:5"} {
			row{name: src, in: packet{src: src, dst: vips[false], flags: "S"}, verdict: drop, drop: "martian-source"}.check(t, n, d)
		}
		must(t, d.Detach())
		n.current = nil
	}
}

// If a backend rejects a connection, its client is informed.
func TestServerRefusesAfterACookie(t *testing.T) {
	c := newCookieClient(t)
	k := c.syn().tcp.Seq
	first := c.send(tcpSeg{tcp: layers.TCP{ACK: true, Seq: 1001, Ack: k + 1}}, redirect)
	rst := c.net.exchangeSeg(t, c.d, tcpSeg{src: servers[false], dst: first.src, tcp: layers.TCP{RST: true, ACK: true, Ack: 1001}}, redirect)
	if rst.flags() != "AR" || rst.tcp.Seq != k+1 || rst.dst != c.src || rst.src != c.vip {
		t.Errorf("the client gets %s, seq %d beyond the cookie", rst.flags(), rst.tcp.Seq-k)
	}
}

// A backend that still has an older connection on the flow's ports answers with an ACK.
// That gets a reset, and the client's next packet sends the SYN again.
func TestServerHasAnOlderConnection(t *testing.T) {
	c := newCookieClient(t)
	k := c.syn().tcp.Seq
	ack := tcpSeg{tcp: layers.TCP{ACK: true, Seq: 1001, Ack: k + 1}}
	first := c.send(ack, redirect)
	rst := c.net.exchangeSeg(t, c.d, tcpSeg{src: servers[false], dst: first.src, tcp: layers.TCP{ACK: true, Seq: 777, Ack: 4242}}, redirect)
	if rst.flags() != "R" || rst.tcp.Seq != 4242 || rst.dst != servers[false] || rst.src != first.src {
		t.Errorf("the server gets %s, seq %d, from %s", rst.flags(), rst.tcp.Seq, rst.src)
	}
	if again := c.send(ack, redirect); again.flags() != "S" || again.tcp.Seq != 1000 || again.dst != servers[false] {
		t.Errorf("and then %s, seq %d", again.flags(), again.tcp.Seq)
	}
}

// The state of connections opened by cookies is removed with their flows.
func TestSynFlowsAreSwept(t *testing.T) {
	n := newNet(t)
	c := config()
	c.MaxFlows = flowtable.Ways
	d := n.open(t, c)
	d.sweeper.close()
	f := frontend(service.FullNAT, vips[false], service.TCP, servers[false])
	upsert(t, d, f)
	putUnderPressure(t, d, f.Key)
	count := func() (n int) {
		must(t, bpf.ReadHash(d.kernel.SynFlows, func(uint32, bpf.BalancerSynFlow) { n++ }))
		return n
	}
	for i := range flowtable.Ways {
		c := &cookieClient{t, n, d, clientOf(i), vips[false], 1000, nil}
		k := c.syn().tcp.Seq
		c.send(tcpSeg{tcp: layers.TCP{ACK: true, Seq: 1001, Ack: k + 1}}, redirect)
	}
	if got := count(); got != flowtable.Ways {
		t.Fatalf("%d are remembered, want %d", got, flowtable.Ways)
	}
	d.sweep(flowtable.Now())
	if got := count(); got != flowtable.Ways {
		t.Errorf("of %d that live %d are left", flowtable.Ways, got)
	}
	setPressure(t, d, f.Key, false, false)
	for i := range 3 { // others take entries
		n.run(t, d, packet{src: clientOf(1000 + i), dst: vips[false], flags: "S"}.bytes(t))
	}
	d.flows.SweepSYN(d.kernel.SynFlows, flowtable.Now()+10)
	if got := count(); got >= flowtable.Ways || got < flowtable.Ways-3 {
		t.Errorf("when others have some of %d places %d are left", flowtable.Ways, got)
	}
	d.sweep(flowtable.Now() + 1000)
	if got := count(); got != 0 {
		t.Errorf("when all flows are over %d are left", got)
	}
}

// A validated source does not become valid again when its time of 16 bits wraps.
func TestValidatedSourcesAreForgotten(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	d.sweeper.close()
	now := flowtable.Now()
	set := bpf.BalancerSynSources{}
	for way, left := range map[int]uint16{1: 9, 2: 0xffff, 7: 0} {
		w := &set.Way[way]
		w.Tag, w.Expires, w.Syns = 5, uint16(now)+left, 3
	}
	must(t, d.kernel.SynSources.Put(uint32(4711), set))
	must(t, synflood.ForgetSources(d.kernel.SynSources, now))
	var got bpf.BalancerSynSources
	must(t, d.kernel.SynSources.Lookup(uint32(4711), &got))
	set.Way[2], set.Way[7] = set.Way[0], set.Way[0]
	if got != set {
		t.Errorf("left are %+v, want %+v", got, set)
	}
}
