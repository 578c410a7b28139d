// Package networks is what every enforce.Enforcer must pass: stories with real
// traffic between pods of two networks on two nodes, a gateway and a host outside.
// What a means cannot do it must refuse by name, and do all else.
package networks

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/domain"
	"github.com/fairlead/fairlead/lab/pour"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/enforce"
)

// Node is where an Enforcer is to work.
type Node struct {
	Host    *lab.Host
	Uplinks []vdn.Uplink
	Gateway bool
}

// Rig is how the suite comes by a means.
type Rig struct {
	// Open opens it for a node, in the calling thread's network namespace, which is
	// the node's; also where a predecessor was closed.
	Open func(n Node) (enforce.Enforcer, error)
	// Attach gives pods their devices; nil for macvlan.
	Attach domain.Attach
	// Ready is called with the domain before anything is enforced; may be nil.
	Ready func(d *domain.Domain) error
	// Gateways says that it works on gateways, too; Lengths that it sees how long is
	// what neighbours say, and all that is in it.
	Gateways, Lengths bool
	// Break takes away what it holds on a node and at a pod, as somebody else would.
	Break func(t *testing.T, node *lab.Host, pod *domain.Pod)
	// Held lists what it holds there, for comparison.
	Held func(t *testing.T, node *lab.Host, pod *domain.Pod) []string
}

// uplink is what the nodes' uplinks carry: little, so that a busy machine has no
// part in what is measured.
const uplink vdn.Rate = 40_000_000

// patience is how long something may take that is to happen.
const patience = 60 * time.Second

// port is where all pods, and the host outside, take everything.
const port = 9

// world is a domain with an Enforcer on each node.
type world struct {
	*domain.Domain
	t     *testing.T
	rig   Rig
	means enforce.Means
	all   map[string]enforce.Enforcer
	sinks map[string]*pour.Sink
	turn  uint64
}

// Run tells all stories of a means.
func Run(t *testing.T, rig Rig) {
	w := newWorld(t, rig)
	for _, s := range stories {
		ok := t.Run(s.name, func(t *testing.T) {
			w.t = t
			s.tell(w)
		})
		if !ok && w.all == nil {
			return
		}
	}
}

func newWorld(t *testing.T, rig Rig) *world {
	t.Helper()
	if rig.Attach == nil {
		rig.Attach = domain.Macvlan
	}
	d, err := domain.Build(context.Background(), rig.Attach)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Add(context.Background(), farther()); err != nil {
		t.Fatal(errors.Join(err, d.Close()))
	}
	w := &world{Domain: d, t: t, rig: rig, all: map[string]enforce.Enforcer{}, sinks: map[string]*pour.Sink{}}
	t.Cleanup(func() {
		for _, e := range w.all {
			if err := e.Remove(); err != nil {
				t.Error(err)
			}
		}
		for _, s := range w.sinks {
			s.Close()
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	if rig.Ready != nil {
		if err := rig.Ready(d); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a1", "a2", "b1", "b2", "outside", "far"} {
		sink, err := pour.Listen(d.Host(name), port)
		if err != nil {
			t.Fatal(err)
		}
		w.sinks[name] = sink
	}
	for _, name := range w.nodes() {
		w.open(name)
	}
	w.means = w.all["n1"].Means()
	return w
}

func (w *world) nodes() []string {
	if w.rig.Gateways {
		return []string{"n1", "n2", "gateway"}
	}
	return []string{"n1", "n2"}
}

func (w *world) open(name string) {
	w.t.Helper()
	n := Node{Host: w.Host(name), Uplinks: []vdn.Uplink{{Device: domain.Uplink, Rate: uplink}}}
	if name == "gateway" {
		n.Gateway = true
		n.Uplinks = append(n.Uplinks, vdn.Uplink{Device: domain.Wide, Rate: uplink})
	}
	testkit.Do(w.t, n.Host.Namespace(), func() error {
		e, err := w.rig.Open(n)
		if err == nil {
			w.all[name] = e
		}
		return err
	})
}

// apply has the slices hold on all nodes.
func (w *world) apply(science, visitors vdn.Slice) {
	w.t.Helper()
	w.turn++
	for _, name := range w.nodes() {
		if err := w.all[name].Apply(w.t.Context(), w.Plan(name, w.turn, science, visitors)); err != nil {
			w.t.Fatalf("apply at %s: %v", name, err)
		}
	}
}

// connect opens a TCP connection from a host to another, from a given address or
// any.
func (w *world) connect(from *lab.Host, local, to netip.Addr, within time.Duration) error {
	ctx, cancel := context.WithTimeout(w.t.Context(), within)
	defer cancel()
	c, err := from.Dial(ctx, local, netip.AddrPortFrom(to, port))
	if err != nil {
		return err
	}
	return c.Close()
}

// talks sees that two hosts do, in both families.
func (w *world) talks(from string, to ...netip.Addr) {
	w.t.Helper()
	for _, addr := range to {
		testkit.Eventually(w.t, patience, func() error {
			if err := w.connect(w.Host(from), netip.Addr{}, addr, 2*time.Second); err != nil {
				return fmt.Errorf("%s to %s: %w", from, addr, err)
			}
			return nil
		})
	}
}

// silent is how long what is dropped is waited for: longer than the first
// retransmission of a SYN.
const silent = 1200 * time.Millisecond

// refused sees that a host does not reach others, and that the drops are counted by
// that reason.
func (w *world) refused(reason, from string, local, to netip.Addr) {
	w.t.Helper()
	before := w.drops(reason)
	testkit.Eventually(w.t, patience, func() error {
		err := w.connect(w.Host(from), local, to, silent)
		if err == nil {
			w.t.Fatalf("%s (from %v) reaches %s: want it %s", from, local, to, reason)
		}
		if after := w.drops(reason); after <= before {
			return fmt.Errorf("%s to %s: %w: %d drops counted as %s, %d before", from, to, err, after, reason, before)
		}
		return nil
	})
}

// drops are those of a reason on all nodes.
func (w *world) drops(reason string) (sum uint64) {
	w.t.Helper()
	for _, name := range w.nodes() {
		for _, c := range w.counters(name) {
			sum += c.Drops[reason]
		}
	}
	return sum
}

func (w *world) counters(node string) []vdn.Counter {
	w.t.Helper()
	all, err := w.all[node].Counters(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// counter is one of a node's; zero where there is none.
func (w *world) counter(node, network, attachment string) vdn.Counter {
	w.t.Helper()
	for _, c := range w.counters(node) {
		if c.Network == network && c.Attachment == attachment {
			return c
		}
	}
	return vdn.Counter{}
}

// addr is a pod's by family: 0 for IPv4, 1 for IPv6.
func (w *world) addr(pod string, family int) netip.Addr { return w.Pods[pod].Addrs[family] }

// at is where a pod takes everything, by IPv4.
func (w *world) at(pod string) netip.AddrPort { return netip.AddrPortFrom(w.addr(pod, 0), port) }
