// Package networks is the test suite that every enforce.Enforcer must pass. Its stories
// (test cases) send real traffic between pods of two networks on two nodes, a gateway and
// an external host. An enforcer must reject by name what it does not support, and
// implement everything else.
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
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/throughput"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/enforce"
)

// Node is a node on which an Enforcer works.
type Node struct {
	Host    *lab.Host
	Uplinks []vdn.Uplink
	Gateway bool
}

// Rig provides the suite with an enforcer.
type Rig struct {
	// Open opens the enforcer for a node. It is called in the node's network namespace,
	// also after a predecessor was closed.
	Open func(n Node) (enforce.Enforcer, error)
	// Attach attaches pods to their devices; nil selects macvlan.
	Attach domain.Attach
	// Ready is called with the domain before anything is enforced. It may be nil.
	Ready func(d *domain.Domain) error
	// Gateways is set if the enforcer also works on gateways. Lengths is set if it checks
	// the length and the whole content of neighbor messages.
	Gateways, Lengths bool
	// Break removes the enforcer's state on a node and at a pod, as a third party would.
	Break func(t *testing.T, node *lab.Host, pod *domain.Pod)
	// Held lists the enforcer's state there, for comparison.
	Held func(t *testing.T, node *lab.Host, pod *domain.Pod) []string
}

// uplink is the rate of the nodes' uplinks. It is low, so that a busy machine does not
// affect the measurements.
const uplink vdn.Rate = 40_000_000

// patience is the timeout for an expected event.
const patience = 60 * time.Second

// port is the port on which all pods and the external host receive.
const port = 9

// world is the environment: a domain with an Enforcer on each node.
type world struct {
	*domain.Domain
	t     *testing.T
	rig   Rig
	means enforce.Means
	all   map[string]enforce.Enforcer
	sinks map[string]*throughput.Sink
	turn  uint64
}

// Run runs all stories with an enforcer.
func Run(t *testing.T, rig Rig) {
	w := newWorld(t, rig)
	for _, s := range stories {
		ok := t.Run(s.name, func(t *testing.T) {
			w.t = t
			s.run(w)
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
	w := &world{Domain: d, t: t, rig: rig, all: map[string]enforce.Enforcer{}, sinks: map[string]*throughput.Sink{}}
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
		sink, err := throughput.Listen(d.Host(name), port)
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

// apply applies the slices on all nodes.
func (w *world) apply(science, visitors vdn.Slice) {
	w.t.Helper()
	w.turn++
	for _, name := range w.nodes() {
		if err := w.all[name].Apply(w.t.Context(), w.Plan(name, w.turn, science, visitors)); err != nil {
			w.t.Fatalf("apply at %s: %v", name, err)
		}
	}
}

// connect opens a TCP connection from one host to another, from the given local address
// or any.
func (w *world) connect(from *lab.Host, local, to netip.Addr, within time.Duration) error {
	ctx, cancel := context.WithTimeout(w.t.Context(), within)
	defer cancel()
	c, err := from.Dial(ctx, local, netip.AddrPortFrom(to, port))
	if err != nil {
		return err
	}
	return c.Close()
}

// talks checks that a host can connect to others, in both families.
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

// silent is how long to wait for a packet that must be dropped: longer than the first
// retransmission of a SYN.
const silent = 1200 * time.Millisecond

// blocked checks that a host cannot reach another, and that the drops are counted with
// that reason.
func (w *world) blocked(reason, from string, local, to netip.Addr) {
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

// drops returns the drops with a reason on all nodes.
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

// counter returns one of a node's counters, or zero if it does not exist.
func (w *world) counter(node, network, attachment string) vdn.Counter {
	w.t.Helper()
	for _, c := range w.counters(node) {
		if c.Network == network && c.Attachment == attachment {
			return c
		}
	}
	return vdn.Counter{}
}

// addr returns a pod's address by family: 0 for IPv4, 1 for IPv6.
func (w *world) addr(pod string, family int) netip.Addr { return w.Pods[pod].Addrs[family] }

// at returns the IPv4 address and port on which a pod receives.
func (w *world) at(pod string) netip.AddrPort { return netip.AddrPortFrom(w.addr(pod, 0), port) }
