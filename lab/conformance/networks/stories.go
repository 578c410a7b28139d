package networks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/advertise/l2/wire"
	"github.com/fairlead/fairlead/lab/domain"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/enforce"
)

// stories run in this order in one world. Each one applies its own complete
// configuration.
var stories = []struct {
	name string
	run  func(w *world)
}{
	{"pods of a network can connect", sameNetwork},
	{"networks are isolated", isolated},
	{"networks that list each other can connect", reach},
	{"only allowed external addresses can be reached", outside},
	{"path MTU discovery through an external router", pathMTU},
	{"ICMP errors pass only for allowed packets", errorsOfRouters},
	{"spoofed source addresses are dropped", spoofed},
	{"spoofed neighbor messages are dropped", spoofedNeighbors},
	{"forged frames are dropped", hostile},
	{"broadcast and multicast stay in the network", toEverybody},
	{"pods cannot select the traffic class of another network", otherClass},
	{"sockets that bypass the queues are filtered", withoutQueues},
	{"sockets that bypass the queues cannot spoof neighbor messages", withoutQueuesNeighbors},
	{"sockets that bypass the queues are limited to the pod's maximum rate", withoutQueuesRate},
	{"the maximum rate of a pod is enforced", maxRatePerHost},
	{"the maximum rate of a network is enforced", sliceMax},
	{"a guaranteed rate holds under load, and unused rate is shared", guarantee},
	{"sent packets are counted", counted},
	{"applying the same plan again changes nothing", again},
	{"a restart changes nothing", restart},
	{"externally removed state is restored", repairs},
	{"a deleted pod does not affect others", gone},
	{"an empty plan removes all state", shrinks},
}

var nothing vdn.Slice

func sameNetwork(w *world) {
	w.apply(nothing, nothing)
	w.talks("a1", w.Pods["a2"].Addrs...)
	w.talks("b2", w.Pods["b1"].Addrs...)
}

func isolated(w *world) {
	w.apply(nothing, nothing)
	for family := range 2 {
		w.blocked(enforce.Isolated, "a1", netip.Addr{}, w.addr("b1", family)) // on the same node
		w.blocked(enforce.Isolated, "a1", netip.Addr{}, w.addr("b2", family))
	}
	w.blocked(enforce.Isolated, "b2", netip.Addr{}, w.addr("a1", 0))
	w.talks("a1", w.addr("a2", 0))
}

func reach(w *world) {
	w.apply(vdn.Slice{PeerNetworks: []uint16{2}}, vdn.Slice{PeerNetworks: []uint16{1}})
	w.talks("a1", w.Pods["b2"].Addrs...)
	w.talks("b1", w.Pods["a1"].Addrs...)
	w.apply(vdn.Slice{PeerNetworks: []uint16{2}}, nothing) // must be configured on both sides
	w.blocked(enforce.Isolated, "a1", netip.Addr{}, w.addr("b2", 0))
}

func outside(w *world) {
	w.apply(nothing, nothing)
	for _, addr := range domain.OutsideAddrs {
		w.blocked(enforce.Outside, "a1", netip.Addr{}, addr)
	}
	w.blocked(enforce.Outside, "outside", netip.Addr{}, w.addr("a1", 0))
	open := vdn.Slice{AllowedCIDRs: []netip.Prefix{netip.MustParsePrefix("203.0.113.8/30"), netip.MustParsePrefix("2001:db8:9::/64")}}
	w.apply(open, nothing)
	w.talks("a1", domain.OutsideAddrs...)
	w.talks("outside", w.addr("a2", 0))
	w.blocked(enforce.Outside, "b1", netip.Addr{}, domain.OutsideAddrs[0]) // only allowed for the other network
	open.AllowedCIDRs = []netip.Prefix{netip.MustParsePrefix("203.0.113.128/25")}
	w.apply(open, nothing)
	w.blocked(enforce.Outside, "a1", netip.Addr{}, domain.OutsideAddrs[0])
	for family, all := range []string{"0.0.0.0/0", "::/0"} { // allowing all of one family allows nothing of the other
		open.AllowedCIDRs = []netip.Prefix{netip.MustParsePrefix(all)}
		w.apply(open, nothing)
		w.talks("a1", domain.OutsideAddrs[family])
		w.blocked(enforce.Outside, "a1", netip.Addr{}, domain.OutsideAddrs[1-family])
	}
}

// spoofed lets a pod use addresses of its network that it does not own.
func spoofed(w *world) {
	w.apply(nothing, nothing)
	h := w.Host("a1")
	link, err := h.Netlink().LinkByName(w.Pods["a1"].Att.Interface)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, text := range []string{"10.1.0.77/24", "fd01::77/64"} {
		addr, err := netlink.ParseAddr(text)
		if err != nil {
			w.t.Fatal(err)
		}
		if err := h.Netlink().AddrAdd(link, addr); err != nil {
			w.t.Fatal(err)
		}
		own := netip.MustParsePrefix(text).Addr()
		family := 0
		if own.Is6() {
			family = 1
		}
		w.blocked(enforce.Spoofed, "a1", own, w.addr("a2", family))
		if err := h.Netlink().AddrDel(link, addr); err != nil {
			w.t.Fatal(err)
		}
	}
	w.talks("a1", w.Pods["a2"].Addrs...)
}

// spoofedNeighbors lets a pod claim another address by ARP. No other host may receive
// that.
func spoofedNeighbors(w *world) {
	w.apply(nothing, nothing)
	w.talks("a2", w.addr("a1", 0))
	before := w.drops(enforce.Spoofed)
	for _, frame := range wire.Announce(netip.MustParseAddr("10.1.0.1"), w.podMAC("a1")) {
		w.sendFrame(w.Host("a1"), w.Pods["a1"].Att.Interface, 0, frame)
	}
	testkit.Eventually(w.t, patience, func() error {
		if w.drops(enforce.Spoofed) == before {
			return errors.New("an ARP message with another pod's address is not counted as spoofed")
		}
		return nil
	})
}

// counted sends a megabyte and checks the counters.
func counted(w *world) {
	w.apply(nothing, nothing)
	const sent = 1 << 20
	sender, slice, receiver := w.counter("n1", domain.Science, "a1.net0"), w.counter("n1", domain.Science, ""), w.counter("n2", domain.Science, "a2.net0")
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	c, err := w.Host("a1").Dial(ctx, netip.Addr{}, w.at("a2"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.Copy(c, io.LimitReader(zeros{}, sent)); err != nil {
		w.t.Fatal(err)
	}
	// A sender may have to retransmit what the uplink's queue dropped. Apart from segment
	// headers, each counter counts at most as much as the one before it on the path.
	testkit.Eventually(w.t, patience, func() error {
		first := w.counter("n1", domain.Science, "a1.net0").SentBytes - sender.SentBytes
		then := w.counter("n1", domain.Science, "").SentBytes - slice.SentBytes
		last := w.counter("n2", domain.Science, "a2.net0").ReceivedBytes - receiver.ReceivedBytes
		if first < sent || first > 4*sent || then < sent || then > first*12/10 || last < sent || last > then*12/10 {
			return fmt.Errorf("%d bytes sent: the sender counted %d, its network %d, the receiver %d", sent, first, then, last)
		}
		return nil
	})
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// enforcedState returns the enforcers' state on the nodes.
func (w *world) enforcedState() string {
	w.t.Helper()
	var all []string
	for _, name := range []string{"a1", "b1", "a2", "b2"} {
		all = append(all, w.rig.Held(w.t, w.Pods[name].Node, w.Pods[name])...)
	}
	return strings.Join(all, "\n")
}

func again(w *world) {
	science := vdn.Slice{MaxRate: uplink / 2, MaxRatePerHost: uplink / 4, PeerNetworks: []uint16{2}, AllowedCIDRs: domain.Prefixes("elsewhere")}
	w.apply(science, nothing)
	w.talks("a1", w.addr("a2", 0))
	before, sent := w.enforcedState(), w.counter("n1", domain.Science, "a1.net0").SentBytes
	for range 3 {
		w.apply(science, nothing)
	}
	if after := w.enforcedState(); after != before {
		w.t.Errorf("applying the same plan again changed the enforced state:\n%s\nbefore:\n%s", after, before)
	}
	if after := w.counter("n1", domain.Science, "a1.net0").SentBytes; after < sent || sent == 0 {
		w.t.Errorf("counted %d bytes before, %d after the same plan", sent, after)
	}
}

// restart checks that connections continue while no process runs, and with the next
// process.
func restart(w *world) {
	w.apply(nothing, nothing)
	w.talks("a1", w.addr("a2", 0))
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	c, err := w.Host("a1").Dial(ctx, netip.Addr{}, w.at("a2"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	flows := func(when string) {
		w.t.Helper()
		before, _ := w.sinks["a2"].Received()
		if _, err := c.Write(make([]byte, 1000)); err != nil {
			w.t.Fatalf("%s: %v", when, err)
		}
		testkit.Eventually(w.t, patience, func() error {
			if n, _ := w.sinks["a2"].Received(); n < before+1000 {
				return fmt.Errorf("%s: no data arrives through the connection", when)
			}
			return nil
		})
	}
	flows("before")
	held, sent := w.enforcedState(), w.counter("n1", domain.Science, "a1.net0").SentBytes
	for _, name := range w.nodes() {
		if err := w.all[name].Close(); err != nil {
			w.t.Fatal(err)
		}
	}
	flows("while no enforcer runs")
	if err := w.connect(w.Host("a1"), netip.Addr{}, w.addr("b2", 0), silent); err == nil {
		w.t.Error("networks are not isolated while no enforcer runs")
	}
	for _, name := range w.nodes() {
		w.open(name)
	}
	flows("before the first plan")
	w.apply(nothing, nothing)
	flows("after")
	if now := w.enforcedState(); now != held {
		w.t.Errorf("enforced state after a restart:\n%s\nbefore:\n%s", now, held)
	}
	if now := w.counter("n1", domain.Science, "a1.net0").SentBytes; now < sent {
		w.t.Errorf("counted %d bytes before a restart, %d after", sent, now)
	}
	w.blocked(enforce.Isolated, "a1", netip.Addr{}, w.addr("b2", 0))
}

func repairs(w *world) {
	w.apply(nothing, nothing)
	held := w.enforcedState()
	w.rig.Break(w.t, w.Pods["a1"].Node, w.Pods["a1"])
	if broken := w.enforcedState(); broken == held {
		w.t.Fatalf("nothing was broken:\n%s", held)
	}
	w.apply(nothing, nothing)
	if now := w.enforcedState(); now != held {
		w.t.Errorf("enforced state:\n%s\nwant:\n%s", now, held)
	}
	w.blocked(enforce.Isolated, "a1", netip.Addr{}, w.addr("b1", 0))
	w.talks("a1", w.addr("a2", 0))
}

// gone applies a plan with a pod whose namespace no longer exists, and then a plan
// without it.
func gone(w *world) {
	w.apply(nothing, nothing)
	held := w.enforcedState()
	p := w.Plan("n1", w.turn, nothing, nothing)
	ghost := p.Local[0]
	ghost.ID, ghost.Container, ghost.NetNS, ghost.Device = "ghost.net0", "ghost", "/run/netns/ghost", "ghost"
	ghost.MAC, ghost.Addresses = "02:00:00:00:00:77", []netip.Prefix{netip.MustParsePrefix("10.1.0.77/24")}
	p.Local = append(p.Local, ghost)
	if err := w.all["n1"].Apply(w.t.Context(), p); err != nil {
		w.t.Errorf("Apply with a deleted pod: %v", err)
	}
	w.talks("a1", w.addr("a2", 0))
	w.apply(nothing, nothing)
	if now := w.enforcedState(); now != held {
		w.t.Errorf("enforced state:\n%s\nwant:\n%s", now, held)
	}
}

func shrinks(w *world) {
	w.apply(nothing, nothing)
	for _, name := range w.nodes() {
		if err := w.all[name].Apply(w.t.Context(), vdn.Plan{Revision: w.turn}); err != nil {
			w.t.Fatal(err)
		}
	}
	if held := w.enforcedState(); held != "" {
		w.t.Errorf("left by an empty plan:\n%s", held)
	}
	w.apply(nothing, nothing)
	for _, name := range w.nodes() {
		if err := w.all[name].Remove(); err != nil {
			w.t.Fatal(err)
		}
		delete(w.all, name)
	}
	if held := w.enforcedState(); held != "" {
		w.t.Errorf("left by Remove:\n%s", held)
	}
}
