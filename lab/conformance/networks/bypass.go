package networks

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/advertise/l2/wire"
	"github.com/fairlead/fairlead/internal/netlist"
	"github.com/fairlead/fairlead/internal/pktgen"
	"github.com/fairlead/fairlead/lab/bypass"
	"github.com/fairlead/fairlead/lab/domain"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/vdn"
)

// bypassQueues runs a check with each kind of socket of a1 that bypasses its device's
// queues.
func (w *world) bypassQueues(run func(way string, send func(frame []byte))) {
	w.t.Helper()
	for way, open := range bypass.Ways {
		s, err := open(w.Host("a1"), w.Pods["a1"].Att.Interface)
		if err != nil {
			w.t.Fatal(err)
		}
		run(way, func(frame []byte) {
			w.t.Helper()
			if err := s.Send(frame); err != nil {
				w.t.Fatalf("%s: %v", way, err)
			}
		})
		if err := s.Close(); err != nil {
			w.t.Error(err)
		}
	}
}

// withoutQueues lets a1 send every forgery past its device's queues. No other node may see
// one, and no socket of another network on its own node.
func withoutQueues(w *world) {
	w.apply(nothing, nothing)
	mark := []byte("bypassed")
	sniffers := map[string]*sniffer{"gateway": w.packets(w.Host("gateway"), domain.Uplink)}
	for _, name := range []string{"a2", "b2"} {
		sniffers[name] = w.packets(w.Host(name), w.Pods[name].Att.Interface)
	}
	neighbor := newSniffer(w.t, w.Host("b1"), unix.AF_INET, unix.IPPROTO_UDP)
	all := w.forgeries(mark)
	// A packet that b1 would accept if it came from b2.
	forged := w.udp(mark, 0, from(w.addr("b2", 0)), to(w.addr("b1", 0)))
	b2, b1 := w.podMAC("b2"), w.podMAC("b1")
	copy(forged, b1[:])
	copy(forged[6:], b2[:])
	all = append(all, forgery{"a packet of b1's network to b1", forged, ""})
	all = append(all, forgery{"a packet of b1's network to all", toAll(bytes.Clone(forged)), ""})
	w.bypassQueues(func(way string, send func([]byte)) {
		before := w.allDrops()
		for _, forgery := range all {
			send(forgery.frame)
		}
		testkit.Eventually(w.t, patience, func() error {
			if n := w.allDrops() - before; n < uint64(len(all)) {
				return fmt.Errorf("%s: %d frames sent, %d counted as dropped", way, len(all), n)
			}
			return nil
		})
		// A packet sent afterwards on the normal path arrives after them.
		w.receivesOnly(sniffers, mark)
		w.talks("b2", w.addr("b1", 0))
		if neighbor.received(mark) {
			w.t.Errorf("a socket of b1on the same node receives packets that a1 sent by %s", way)
		}
	})
}

// allDrops returns the drops of all reasons on all nodes.
func (w *world) allDrops() (sum uint64) {
	w.t.Helper()
	for _, name := range w.nodes() {
		for _, c := range w.counters(name) {
			for _, n := range c.Drops {
				sum += n
			}
		}
	}
	return sum
}

// withoutQueuesNeighbors lets a1 claim the address of the other network's gateway by
// ARP, past its queues: to all hosts of the segment, and to each one separately.
func withoutQueuesNeighbors(w *world) {
	w.apply(nothing, nothing)
	gateway := domain.Prefixes(domain.Visitors)[0].Addr().Next()
	mac := w.podMAC("a1")
	for _, name := range []string{"b1", "b2"} {
		w.neighbor(name, gateway)
	}
	w.bypassQueues(func(way string, send func([]byte)) {
		for _, name := range []string{"b1", "b2"} {
			for _, frame := range wire.Announce(gateway, mac) {
				single := bytes.Clone(frame)
				b := w.podMAC(name)
				copy(single, b[:])
				for range 3 {
					send(frame)
					send(single)
				}
			}
		}
		w.talks("a1", w.addr("a2", 0)) // they have passed when this returns
		for _, name := range []string{"b1", "b2"} {
			if got := w.neighbor(name, gateway); bytes.Equal(got, mac[:]) {
				w.t.Errorf("%s uses a1's MAC address for its gateway after a1 spoofed it by %s", name, way)
			}
		}
	})
}

// neighbor returns a pod's neighbor entry for an IPv4 address, and triggers its
// resolution if it is missing.
func (w *world) neighbor(pod string, of netip.Addr) (mac net.HardwareAddr) {
	w.t.Helper()
	h := w.Host(pod)
	link, err := h.Netlink().LinkByName(w.Pods[pod].Att.Interface)
	if err != nil {
		w.t.Fatal(err)
	}
	testkit.Eventually(w.t, patience, func() error {
		all, err := netlist.Whole(func() ([]netlink.Neigh, error) { return h.Netlink().NeighList(link.Attrs().Index, netlink.FAMILY_V4) })
		for _, n := range all {
			if n.IP.Equal(of.AsSlice()) && len(n.HardwareAddr) == 6 {
				mac = n.HardwareAddr
				return nil
			}
		}
		_ = w.connect(h, netip.Addr{}, of, time.Second) // nothing listens there, but the address is resolved
		return errors.Join(err, fmt.Errorf("%s has no neighbor entry for %s", pod, of))
	})
	return mac
}

// withoutQueuesRate lets a1 send well-formed packets above its rate limit, past its
// queues.
func withoutQueuesRate(w *world) {
	const most vdn.Rate = 8_000_000
	w.apply(vdn.Slice{MaxRatePerHost: most, PeerNetworks: []uint16{2}}, vdn.Slice{PeerNetworks: []uint16{1}})
	w.talks("a1", w.addr("b2", 0))
	p := pktgen.Packet{From: netip.AddrPortFrom(w.addr("a1", 0), 4444), To: w.at("b2"), Protocol: "udp", Payload: 1400}
	long := w.frame(w.podMAC("b2"), w.podMAC("a1"), p)
	w.bypassQueues(func(way string, send func([]byte)) {
		_, before := w.sinks["b2"].Received()
		const duration = time.Second
		start := time.Now()
		for time.Since(start) < duration {
			send(long)
		}
		took := time.Since(start)
		w.talks("a1", w.addr("b2", 0))
		_, after := w.sinks["b2"].Received()
		// A burst of 100 ms is allowed (bpf/vdn/bucket.h).
		if got, may := float64(after-before)*8/took.Seconds(), float64(most)*1.3; got > may {
			w.t.Errorf("b2 receives %.1f Mbit/s from a1 by %s; the maximum rate of the pod is %s", got/1e6, way, most)
		}
	})
}
