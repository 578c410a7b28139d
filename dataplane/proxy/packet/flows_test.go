package packet

import (
	"net"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/pktgen"
	"github.com/fairlead/fairlead/lab/netns"
)

// changeFlows edits both halves of all flows.
func (w *world) changeFlows(edit func(*packetTuple, *packetPacketFlow) (keep bool)) {
	w.t.Helper()
	var key packetTuple
	var f packetPacketFlow
	it := w.half.obj.PacketFlows.Iterate()
	programmed := map[packetTuple]packetPacketFlow{}
	for it.Next(&key, &f) {
		programmed[key] = f
	}
	for key, f := range programmed {
		err := error(nil)
		if edit(&key, &f) {
			err = w.half.obj.PacketFlows.Put(key, f)
		} else {
			err = w.half.obj.PacketFlows.Delete(key)
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// TestFlowsEnd: flows are silent for longer than their timeout, and a half of one is
// lost.
func TestFlowsEnd(t *testing.T) {
	inWorld(t, func(w *world, v6 family) {
		w.expose(v6, "A", "A")
		vip, client, target := v6.at(clusterIP, 80), v6.at(podCAddr, 4000), v6.at(podAAddr, 8080)
		lose := func(half packetPacketFlowKind) {
			w.changeFlows(func(_ *packetTuple, f *packetPacketFlow) bool { f.Seen -= 5; return f.Kind&answer != half })
		}
		w.pass("it opens", fromPodC, syn(client, vip), syn(client, target), untouched)
		w.pass("an answer", toPodC, ack(target, client), ack(vip, client), untouched)
		w.pass("more", fromPodC, ack(client, vip), ack(client, target), untouched)
		lose(answer)
		w.pass("more when half is lost", fromPodC, ack(client, vip), ack(client, target), untouched)
		lose(0)
		w.pass("an answer when the other half was", toPodC, ack(target, client), ack(vip, client), untouched)
		w.changeFlows(older(70000))
		w.pass("more after most of a day", fromPodC, ack(client, vip), ack(client, target), untouched)
		w.changeFlows(older(81000))
		before := w.counted("reset")
		if verdict, _ := w.run(fromPodC, w.frame(ack(client, vip))); verdict != sent || w.counted("reset") != before+1 {
			w.t.Errorf("more after more than a day: verdict %d; want a reset", verdict)
		}
		w.pass("it opens again", fromPodC, syn(client, vip), syn(client, target), untouched)
		w.changeFlows(older(100))
		if verdict, _ := w.run(fromPodC, w.frame(ack(client, vip))); verdict != sent {
			w.t.Errorf("more without an answer for long: verdict %d; want a reset", verdict)
		}
	})
}

// TestClosedConnection is followed by one with the same ports, possibly to another
// endpoint.
func TestClosedConnection(t *testing.T) {
	inWorld(t, func(w *world, v6 family) {
		w.expose(v6, "A", "A")
		vip, client, target := v6.at(clusterIP, 80), v6.at(podCAddr, 4000), v6.at(podAAddr, 8080)
		fin := func(from, to netip.AddrPort) pktgen.Packet {
			return pktgen.Packet{From: from, To: to, Protocol: "tcp", Flags: []string{"FIN", "ACK"}}
		}
		w.pass("it opens", fromPodC, syn(client, vip), syn(client, target), untouched)
		w.pass("an answer", toPodC, ack(target, client), ack(vip, client), untouched)
		w.expose(v6, "B", "B")
		w.pass("it continues", fromPodC, ack(client, vip), ack(client, target), untouched)
		w.pass("one side closes", fromPodC, fin(client, vip), fin(client, target), untouched)
		w.pass("and the other", toPodC, fin(target, client), fin(vip, client), untouched)
		w.pass("the last word", fromPodC, ack(client, vip), ack(client, target), untouched)
		w.pass("it opens again", fromPodC, syn(client, vip), syn(client, v6.at(podBAddr, 8080)), untouched)
	})
}

func rst(from, to netip.AddrPort) pktgen.Packet {
	return pktgen.Packet{From: from, To: to, Protocol: "tcp", Flags: []string{"RST"}}
}

func older(ticks uint32) func(*packetTuple, *packetPacketFlow) bool {
	return func(_ *packetTuple, f *packetPacketFlow) bool { f.Seen -= ticks; return true }
}

// TestReset: a reset is followed by another packet of its connection, or by nothing.
func TestReset(t *testing.T) {
	inWorld(t, func(w *world, v6 family) {
		w.forgetAll()
		w.expose(v6, "A", "A")
		vip, client, target := v6.at(clusterIP, 80), v6.at(podCAddr, 4000), v6.at(podAAddr, 8080)
		toTarget := func(name string, packet func(from, to netip.AddrPort) pktgen.Packet) {
			w.pass(name, fromPodC, packet(client, vip), packet(client, target), untouched)
		}
		toClient := func(name string, packet func(from, to netip.AddrPort) pktgen.Packet) {
			w.pass(name, toPodC, packet(target, client), packet(vip, client), untouched)
		}
		type way func(string, func(from, to netip.AddrPort) pktgen.Packet)
		toTarget("it opens", syn)
		toClient("an answer", ack)
		toTarget("more", ack)
		for _, c := range []struct {
			name          string
			resets, sends way
		}{
			{"the client, which continues", toTarget, toTarget}, {"the client, and the target continues", toTarget, toClient},
			{"the target, which continues", toClient, toClient}, {"the target, and the client continues", toClient, toTarget},
		} {
			c.resets("a reset of "+c.name, rst)
			c.sends("more after a reset of "+c.name, ack)
			w.changeFlows(func(_ *packetTuple, f *packetPacketFlow) bool {
				if f.State&reset != 0 {
					w.t.Errorf("after a reset of %s its flow is %s", c.name, f.State.describe(service.TCP))
				}
				f.Seen -= 1000
				return true
			})
			toTarget("more long after a reset of "+c.name, ack)
			toClient("and an answer", ack)
		}
		toClient("the last reset", rst)
		w.changeFlows(older(20))
		before := w.counted("reset")
		if verdict, _ := w.run(fromPodC, w.frame(ack(client, vip))); verdict != sent || w.counted("reset") != before+1 {
			w.t.Errorf("more after nothing but a reset: verdict %d; want a reset", verdict)
		}
	})
}

// TestForgedReset: connections survive resets that their ends do not accept, from any
// direction.
func TestForgedReset(t *testing.T) {
	inWorld(t, func(w *world, v6 family) {
		for _, c := range []struct {
			targets string
			place   at
			ns      *netns.NS
			at      netip.AddrPort
		}{
			{"A", fromNetwork, w.client, v6.at(clusterIP, 80)}, {"B", fromNetwork, w.client, v6.at(nodeAAddr, 30080)},
			{"B", fromPodC, w.podC, v6.at(clusterIP, 80)},
		} {
			w.expose(v6, c.targets, c.targets)
			conn, err := w.dial(c.ns, "tcp", c.at)
			if err != nil {
				w.t.Fatal(err)
			}
			defer conn.Close()
			ask := func() {
				w.t.Helper()
				buf := make([]byte, 4096)
				if _, err := conn.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
					w.t.Fatal(err)
				}
				if n, err := conn.Read(buf); err != nil || n == 0 {
					w.t.Fatalf("%d bytes, %v\n%s", n, err, w.state())
				}
			}
			ask()
			forged := rst(conn.LocalAddr().(*net.TCPAddr).AddrPort(), c.at)
			if verdict, _ := w.run(c.place, w.frame(forged)); verdict == dropped {
				w.t.Errorf("verdict %d\n%s", verdict, w.state())
			}
			ask()
			w.changeFlows(older(1000))
			ask()
		}
	})
}
