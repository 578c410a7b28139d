package packet

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/internal/clock"
	"github.com/fairlead/fairlead/internal/pktgen"
	"github.com/fairlead/fairlead/lab/testkit"
)

func datagram(from, to netip.AddrPort) pktgen.Packet {
	return pktgen.Packet{From: from, To: to, Protocol: "udp", Payload: 10}
}

// age makes entries that are this many ticks older than their timeout.
func (w *world) age(over func(*packetTuple, *packetPacketFlow) int) {
	w.changeFlows(func(key *packetTuple, f *packetPacketFlow) bool {
		keep := w.half.keep.of(f.State, service.Protocol(key.Proto))
		f.Seen = uint32(clock.Now()>>clock.TickShift) - uint32(int(keep)+over(key, f))
		return true
	})
}

// entries returns the table's entries.
func (w *world) entries() map[packetTuple]packetPacketFlow {
	w.t.Helper()
	programmed := map[packetTuple]packetPacketFlow{}
	for c := newCursor(); !c.Done(); {
		keys, flows, err := c.Next(w.half.obj.PacketFlows)
		if err != nil {
			w.t.Fatal(err)
		}
		for i := range keys {
			programmed[keys[i]] = flows[i]
		}
	}
	return programmed
}

func (w *world) sweep() {
	w.t.Helper()
	if err := w.half.sweep(newCursor()); err != nil {
		w.t.Fatal(err)
	}
}

// TestOverIsWhatTheProgramsKnowNoMore: flows of all kinds are silent for slightly less
// and slightly more than their timeout.
func TestOverIsWhatTheProgramsKnowNoMore(t *testing.T) {
	const flows, margin = 256, 8 // fewer ticks pass meanwhile
	inWorld(t, func(w *world, v6 family) {
		w.forgetAll()
		w.expose(v6, "A", "A")
		r := rand.New(rand.NewPCG(1, 2))
		vip := v6.at(clusterIP, 80)
		next := func(i int) (opens, goesOn pktgen.Packet) {
			client := v6.at(podCAddr, uint16(4000+i))
			if i%3 == 0 {
				return datagram(client, vip), datagram(client, vip)
			}
			return syn(client, vip), ack(client, vip)
		}
		for i := range flows {
			opens, _ := next(i)
			w.run(fromPodC, w.frame(opens))
		}
		w.changeFlows(func(_ *packetTuple, f *packetPacketFlow) bool {
			f.State = packetPacketFlowState(r.IntN(int(2 * reset)))
			return true
		})
		w.age(func(*packetTuple, *packetPacketFlow) int { return margin * (2*r.IntN(2) - 1) })
		over := map[uint16]bool{}
		for key, f := range w.entries() {
			if f.Kind&answer == 0 {
				over[key.Sport] = w.half.isOver(&key, &f, clock.Now())
			}
		}
		left := flows
		for i := range flows {
			_, goesOn := next(i)
			before := w.counted("reset") + w.counted("flow-made")
			w.run(fromPodC, w.frame(goesOn))
			known := w.counted("reset")+w.counted("flow-made") == before
			if is := over[swap(uint16(4000+i))]; known == is {
				w.t.Errorf("flow %d is over: %t, and known: %t", i, is, known)
			}
			if !known {
				left--
			}
		}
		if left == 0 || left == flows {
			w.t.Errorf("%d flows of %d are left", left, flows)
		}
	})
}

func swap(port uint16) uint16 { return port<<8 | port>>8 }

// TestSweep removes what is over from a table that takes several batches.
func TestSweep(t *testing.T) {
	inWorld(t, func(w *world, v6 family) {
		w.forgetAll()
		w.expose(v6, "A", "A")
		vip := v6.at(clusterIP, 80)
		for port := range uint16(3000) {
			w.run(fromPodC, w.frame(syn(v6.at(podCAddr, 4000+port), vip)))
		}
		isOver := func(key *packetTuple) bool {
			client := swap(key.Sport)
			if client == 8080 {
				client = swap(key.Dport)
			}
			return client%10 != 0
		}
		w.age(func(key *packetTuple, _ *packetPacketFlow) int {
			if isOver(key) {
				return 20 // fewer ticks pass meanwhile
			}
			return -20
		})
		before, swept := w.entries(), w.counted("half-swept")
		w.sweep()
		after := w.entries()
		for key, f := range before {
			if now, ok := after[key]; ok == isOver(&key) || ok && now != f {
				w.t.Fatalf("%v: programmed after the sweep: %t, as %v", key, ok, now)
			}
		}
		if took := w.counted("half-swept") - swept; took != uint64(len(before)-len(after)) || len(before) < entriesAtOnce {
			w.t.Errorf("%d swept; %d entries before, %d after", took, len(before), len(after))
		}
		listed := 0
		for f, err := range w.half.EachFlow(dataplane.FlowQuery{}) {
			if err != nil || f.VIP != vip || f.Server != v6.at(podAAddr, 8080) || f.State != "opening" || f.Client.Port()%10 != 0 {
				w.t.Fatalf("%v, %v", f, err)
			}
			listed++
		}
		if listed != 300 {
			w.t.Errorf("%d flows are listed, want 300", listed)
		}
	})
}

// TestSweepSparesTheNextFlow: a flow starts with the ports of one that is over, at every
// point between the check and the removal.
func TestSweepSparesTheNextFlow(t *testing.T) {
	inWorld(t, func(w *world, v6 family) {
		w.forgetAll()
		w.expose(v6, "A", "A")
		vip, client, target := v6.at(clusterIP, 80), v6.at(podCAddr, 4000), v6.at(podAAddr, 8080)
		for _, c := range []struct {
			name   string
			remove func(keys []packetTuple) error
		}{
			{"before the second look", w.half.removeOver},
			{"behind the second look", func(keys []packetTuple) error {
				for i := range keys {
					if err := w.half.remove(&keys[i]); err != nil {
						return err
					}
				}
				return nil
			}},
		} {
			w.pass("a flow", fromPodC, syn(client, vip), syn(client, target), untouched)
			w.age(func(*packetTuple, *packetPacketFlow) int { return 5 })
			var over []packetTuple
			err := w.half.worker.Do(func() (err error) {
				over, err = w.half.nextOver(newCursor())
				return err
			})
			if err != nil || len(over) != 2 {
				w.t.Fatalf("%d halves are over, %v; want 2", len(over), err)
			}
			w.pass("the next one "+c.name, fromPodC, syn(client, vip), syn(client, target), untouched)
			programmed := w.entries()
			if err := w.half.worker.Do(func() error { return c.remove(over) }); err != nil {
				w.t.Fatal(err)
			}
			if left := w.entries(); len(left) != 2 || left[over[0]] != programmed[over[0]] || left[over[1]] != programmed[over[1]] {
				w.t.Errorf("%s: %v is left of %v", c.name, left, programmed)
			}
			w.pass("it continues", fromPodC, ack(client, vip), ack(client, target), untouched)
			w.pass("and is answered", toPodC, ack(target, client), ack(vip, client), untouched)
			w.forgetAll()
			if err := w.half.worker.Do(func() error { return w.half.removeOver(over) }); err != nil {
				w.t.Errorf("what is gone already: %v", err)
			}
		}
	})
}

// TestSweepDuringTraffic has clients communicate while ended flows appear and are swept.
func TestSweepDuringTraffic(t *testing.T) {
	w := newWorld(t)
	if err := w.half.Close(); err != nil {
		t.Fatal(err)
	}
	w.cfg.sweepEvery = time.Millisecond
	w.openHalf()
	families(t, func(t *testing.T, v6 family) {
		w.t = t
		w.expose(v6, "AB", "AB")
		before := w.counted("half-swept")
		stop := make(chan struct{})
		var filler sync.WaitGroup
		filler.Go(func() {
			key := packetTuple{Proto: uint8(service.UDP), Src: addrOf(v6.of(podBAddr))}
			over := packetPacketFlow{Seen: uint32(clock.Now()>>clock.TickShift) - 1000}
			for {
				for range 100 {
					key.Sport++
					if err := w.half.obj.PacketFlows.Put(key, over); err != nil {
						t.Error(err)
						return
					}
				}
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
			}
		})
		defer filler.Wait()
		defer close(stop)
		conn, err := w.dial(w.client, "udp", v6.at(nodeAAddr, 30080))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		browser := w.browser(w.client)
		name, _ := w.ask(browser, v6.at(clusterIP, 80))
		first, _ := w.datagram(conn, 10)
		for i := 0; w.counted("half-swept") < before+1000 || i < 50; i++ {
			if got, _ := w.ask(browser, v6.at(clusterIP, 80)); got != name {
				t.Fatalf("%s answered on a connection to %s", got, name)
			}
			conn.SetDeadline(time.Now().Add(patience))
			if got, _ := w.datagram(conn, 10); got != first {
				t.Fatalf("%s answered where %s did", got, first)
			}
		}
		w.wantBodies(browser, v6.at(clusterIP, 80))
	})
}

// TestSweepsByItself waits for the table to be swept.
func TestSweepsByItself(t *testing.T) {
	w := newWorld(t)
	if err := w.half.Close(); err != nil {
		t.Fatal(err)
	}
	w.cfg.sweepEvery = 0
	w.openHalf()
	if w.half.cfg.sweepEvery != sweepEvery {
		t.Errorf("sweeps every %v", w.half.cfg.sweepEvery)
	}
	w.expose(false, "A", "A")
	w.run(fromPodC, w.frame(syn(family(false).at(podCAddr, 4000), family(false).at(clusterIP, 80))))
	w.age(func(*packetTuple, *packetPacketFlow) int { return 5 })
	testkit.Eventually(t, 3*patience, func() error {
		if programmed := w.entries(); len(programmed) > 0 {
			return fmt.Errorf("%d entries are programmed", len(programmed))
		}
		return nil
	})
}

func TestFlowsFor(t *testing.T) {
	var got []uint32
	for _, gigabytes := range []uint64{0, 1, 4, 8, 16, 1024} {
		got = append(got, flowsFor(gigabytes<<30))
	}
	if want := []uint32{65536, 65536, 65536, 131072, 131072, 131072}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
