package xdp

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/flowtable"
	"github.com/fairlead/fairlead/lab/testkit"
)

// Ticks for which an established flow lives, and after which that is renewed.
const (
	established = 900e9 >> flowtable.TickShift
	renew       = 5e9 >> flowtable.TickShift
)

// copyOf returns the check of the copy of a word, or nil without one.
func copyOf(d *DataPlane, w flowtable.Word) (check *uint64) {
	for i := range d.flows.Recent {
		for j := range d.flows.Recent[i].Way {
			if e := &d.flows.Recent[i].Way[j]; e.Check != 0 && e.Word == uint64(w) {
				return &e.Check
			}
		}
	}
	return nil
}

// A flow with direct return has a copy from its first packet that changes nothing until one
// that does. Flows with nat have none.
func TestCopiesFollowTheFlow(t *testing.T) {
	inEach(t, []service.Method{service.Tunnel, service.FullNAT}, eachFamily, func(t *testing.T, w *world) {
		c := w.connect(t)
		c.open(opening[:2])
		if _, word := c.entry(); copyOf(w.d, word) != nil {
			t.Error("an opening flow has a copy")
		}
		if w.method == service.FullNAT {
			c.all(synack, opening[1], answer, clientContinues, clientContinues)
			if _, word := c.entry(); copyOf(w.d, word) != nil {
				t.Error("a flow with fullnat has a copy")
			}
			return
		}
		c.send(clientContinues)
		entry, word := c.entry()
		if copyOf(w.d, word) == nil {
			t.Error("an established flow has no copy")
		}
		// Without its entry, packets still find the flow, unless this machine was slow.
		atomic.StoreUint64(entry, 0)
		c.send(clientContinues)
		if got := atomic.LoadUint64(entry); got != 0 && flowtable.Now()-(word.Expires()-established) < renew {
			t.Errorf("a packet with a copy has written the entry: %#x", got)
		}
		atomic.StoreUint64(entry, uint64(word))
		c.send(forgedFIN)
		if copyOf(w.d, word) != nil {
			t.Error("a flow that may have ended still has its copy")
		}
	})
}

// A copy is not used once the flow's timeout is to be renewed, and follows the renewal.
func TestCopiesDoNotStopRenewals(t *testing.T) {
	w := newWorld(t, service.Tunnel, false)
	c := w.connect(t)
	c.open(opening)
	c.send(clientContinues)
	entry, word := c.entry()
	old := copyOf(w.d, word)
	if old == nil {
		t.Fatal("an established flow has no copy")
	}
	aged := uint64(word) - renew<<32
	for i := range w.d.flows.Recent {
		for j := range w.d.flows.Recent[i].Way {
			if e := &w.d.flows.Recent[i].Way[j]; &e.Check == old {
				e.Check ^= e.Word ^ aged
				e.Word = aged
			}
		}
	}
	atomic.StoreUint64(entry, aged)
	c.send(clientContinues)
	_, now := c.entry()
	if now.Expires() < word.Expires() {
		t.Errorf("it expires at %d, not renewed from %d", now.Expires(), word.Expires())
	}
	if copyOf(w.d, now) != old || copyOf(w.d, flowtable.Word(aged)) != nil {
		t.Error("the copy is not that of the renewed word")
	}
}

// A copy does not outlast its backend, regardless of how many owners the backend's number
// has had since.
func TestCopiesOfRemovedBackends(t *testing.T) {
	n := newNet(t)
	c := config()
	c.MaxBackends = 1
	d := n.open(t, c)
	d.sweeper.close()
	f := stateful(service.RoundRobin, 1)
	upsert(t, d, f)
	opened(t, n, d, vips[false], 1)
	frame := packet{src: clientOf(0), dst: vips[false], flags: "A"}.bytes(t)
	n.run(t, d, frame)
	_, word := flowEntry(t, d, clientOf(0), vips[false], service.TCP)
	if copyOf(d, word) == nil {
		t.Fatal("an established flow has no copy")
	}
	const generationBits = 7
	for range 1 << generationBits {
		must(t, d.Delete(f.Key))
		upsert(t, d, f)
	}
	if copyOf(d, word) != nil {
		t.Error("it has a copy after a whole round of generations")
	}
	n.run(t, d, frame)
	if all, err := allFlows(d); err != nil || len(all) > 0 {
		t.Errorf("the packet did not open a flow, which is listed with its second packet: %v, %v", all, err)
	}
}

// Flows that share lines of copies on several CPUs, and open, end and open again, never
// exchange backends.
func TestCopiesOnManyCPUs(t *testing.T) {
	n := newNet(t)
	c := config()
	c.MaxFlows = 64 // one line
	d := n.open(t, c)
	f := stateful(service.RoundRobin, 7)
	upsert(t, d, f)
	const clients, rounds = 4, 300
	var all sync.WaitGroup
	for i := range clients {
		all.Add(1)
		go func() {
			defer all.Done()
			testkit.Do(t, n.balancer, func() error {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				return reconnect(t, n, d, i, rounds)
			})
		}()
	}
	all.Wait()
}

// reconnect opens, uses and ends a client's connection on the same port, many times.
func reconnect(t *testing.T, n *testNet, d *DataPlane, client, rounds int) error {
	send := func(flags string, sent uint32) string {
		p := packet{src: clientOf(client), dst: vips[false], flags: flags, seq: clientISN + sent, ack: serverISN + 1}
		if flags == "S" {
			p.ack = 0
		}
		to, err := n.server(d, p.bytes(t))
		if err != nil || !to.IsValid() {
			t.Errorf("client %d: %s is not sent: %v, %v", client, flags, err, d.Describe().Drops)
		}
		return fmt.Sprint(to)
	}
	for round := range rounds {
		was := send("S", 0)
		for i := range 3 + rand.IntN(4) {
			if to := send("A", 1); to != was {
				t.Errorf("client %d, round %d: packet %d goes to %s, not to %s", client, round, i, to, was)
			}
		}
		if to := send("RA", 1); to != was {
			t.Errorf("client %d, round %d: the end goes to %s, not to %s", client, round, to, was)
		}
	}
	return nil
}

// With many more flows in use than copies, packets neither search nor make copies, until
// there are fewer again.
func TestTooManyFlowsForCopies(t *testing.T) {
	n := newNet(t)
	c := config()
	c.MaxFlows = 128 // two lines of four copies
	d := n.open(t, c)
	d.sweeper.close()
	early := func(want bpf.BalancerEarly) {
		t.Helper()
		d.sweep(flowtable.Now())
		var set bpf.BalancerSettings
		if err := d.kernel.Set.Get(&set); err != nil || set.Early != uint8(want) {
			t.Errorf("packets read %d early, want %d: %v", set.Early, want, err)
		}
	}
	early(bpf.BalancerEarlyEARLY_NOTHING)
	f := stateful(service.RoundRobin, 7)
	upsert(t, d, f)
	early(bpf.BalancerEarlyEARLY_COPY)
	const flows = 30
	opened(t, n, d, vips[false], flows)
	early(bpf.BalancerEarlyEARLY_SET)
	clear(d.flows.Recent)
	for i := range flows {
		n.run(t, d, packet{src: clientOf(i), dst: vips[false], flags: "A"}.bytes(t))
	}
	for i := range d.flows.Recent {
		if d.flows.Recent[i] != (bpf.BalancerFlowRecent{}) {
			t.Errorf("a packet has made a copy: %x", d.flows.Recent[i].Way)
		}
	}
	for i := range d.flows.Sets {
		for j := range d.flows.Sets[i].Way {
			d.flows.Sets[i].Way[j].Word -= 20 << 32
		}
	}
	early(bpf.BalancerEarlyEARLY_COPY)
	must(t, d.Delete(f.Key))
	early(bpf.BalancerEarlyEARLY_NOTHING)
}
