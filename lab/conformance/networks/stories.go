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
	tell func(w *world)
}{
	{"hosts of one network talk", sameNetwork},
	{"networks are isolated", isolated},
	{"networks that name each other talk", reach},
	{"what is outside is denied, but what is allowed", outside},
	{"a router outside tells of its link's MTU", pathMTU},
	{"a router's errors are about what was allowed", errorsOfRouters},
	{"nobody sends from another's address", spoofed},
	{"nobody answers for another's address", spoofedNeighbours},
	{"nobody gets tricks past the guard", hostile},
	{"what is for all is for one's own", toEverybody},
	{"nobody takes another's class", otherClass},
	{"sockets that skip the queues get nothing past the guard", withoutQueues},
	{"sockets that skip the queues answer for nobody", withoutQueuesNeighbours},
	{"sockets that skip the queues are held to a host's max", withoutQueuesRate},
	{"a host has its max", maxRatePerHost},
	{"a network has its max", sliceMax},
	{"a guarantee holds under attack, and what it leaves is lent out", guarantee},
	{"what is sent is counted", counted},
	{"the same plan again changes nothing", again},
	{"a restart changes nothing", restart},
	{"what somebody took away comes back", heals},
	{"a pod that is gone harms nobody", gone},
	{"all goes with the plan", shrinks},
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
		w.refused(enforce.Isolated, "a1", netip.Addr{}, w.addr("b1", family)) // on the same node
		w.refused(enforce.Isolated, "a1", netip.Addr{}, w.addr("b2", family))
	}
	w.refused(enforce.Isolated, "b2", netip.Addr{}, w.addr("a1", 0))
	w.talks("a1", w.addr("a2", 0))
}

func reach(w *world) {
	w.apply(vdn.Slice{PeerNetworks: []uint16{2}}, vdn.Slice{PeerNetworks: []uint16{1}})
	w.talks("a1", w.Pods["b2"].Addrs...)
	w.talks("b1", w.Pods["a1"].Addrs...)
	w.apply(vdn.Slice{PeerNetworks: []uint16{2}}, nothing) // one alone does not do
	w.refused(enforce.Isolated, "a1", netip.Addr{}, w.addr("b2", 0))
}

func outside(w *world) {
	w.apply(nothing, nothing)
	for _, addr := range domain.OutsideAddrs {
		w.refused(enforce.Outside, "a1", netip.Addr{}, addr)
	}
	w.refused(enforce.Outside, "outside", netip.Addr{}, w.addr("a1", 0))
	open := vdn.Slice{AllowedCIDRs: []netip.Prefix{netip.MustParsePrefix("203.0.113.8/30"), netip.MustParsePrefix("2001:db8:9::/64")}}
	w.apply(open, nothing)
	w.talks("a1", domain.OutsideAddrs...)
	w.talks("outside", w.addr("a2", 0))
	w.refused(enforce.Outside, "b1", netip.Addr{}, domain.OutsideAddrs[0]) // allowed to the other
	open.AllowedCIDRs = []netip.Prefix{netip.MustParsePrefix("203.0.113.128/25")}
	w.apply(open, nothing)
	w.refused(enforce.Outside, "a1", netip.Addr{}, domain.OutsideAddrs[0])
	for family, all := range []string{"0.0.0.0/0", "::/0"} { // all of one family is nothing of the other
		open.AllowedCIDRs = []netip.Prefix{netip.MustParsePrefix(all)}
		w.apply(open, nothing)
		w.talks("a1", domain.OutsideAddrs[family])
		w.refused(enforce.Outside, "a1", netip.Addr{}, domain.OutsideAddrs[1-family])
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
		w.refused(enforce.Spoofed, "a1", own, w.addr("a2", family))
		if err := h.Netlink().AddrDel(link, addr); err != nil {
			w.t.Fatal(err)
		}
	}
	w.talks("a1", w.Pods["a2"].Addrs...)
}

// spoofedNeighbours lets a pod claim another address by ARP. No other host may receive
// that.
func spoofedNeighbours(w *world) {
	w.apply(nothing, nothing)
	w.talks("a2", w.addr("a1", 0))
	before := w.drops(enforce.Spoofed)
	for _, frame := range wire.Announce(netip.MustParseAddr("10.1.0.1"), w.podMAC("a1")) {
		w.sendFrame(w.Host("a1"), w.Pods["a1"].Att.Interface, 0, frame)
	}
	testkit.Eventually(w.t, patience, func() error {
		if w.drops(enforce.Spoofed) == before {
			return errors.New("an ARP that names another's address is not counted as spoofed")
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
			return fmt.Errorf("of %d bytes sent the sender has counted %d, its network %d, the receiver %d", sent, first, then, last)
		}
		return nil
	})
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// heldThere returns the enforcers' state on the nodes.
func (w *world) heldThere() string {
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
	before, sent := w.heldThere(), w.counter("n1", domain.Science, "a1.net0").SentBytes
	for range 3 {
		w.apply(science, nothing)
	}
	if after := w.heldThere(); after != before {
		w.t.Errorf("the same plan again changed what is held:\n%s\nbefore:\n%s", after, before)
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
				return fmt.Errorf("%s: nothing comes through the connection", when)
			}
			return nil
		})
	}
	flows("before")
	held, sent := w.heldThere(), w.counter("n1", domain.Science, "a1.net0").SentBytes
	for _, name := range w.nodes() {
		if err := w.all[name].Close(); err != nil {
			w.t.Fatal(err)
		}
	}
	flows("while nobody is there")
	if err := w.connect(w.Host("a1"), netip.Addr{}, w.addr("b2", 0), silent); err == nil {
		w.t.Error("while nobody is there networks are not isolated")
	}
	for _, name := range w.nodes() {
		w.open(name)
	}
	flows("before the first plan")
	w.apply(nothing, nothing)
	flows("after")
	if now := w.heldThere(); now != held {
		w.t.Errorf("held after a restart:\n%s\nbefore:\n%s", now, held)
	}
	if now := w.counter("n1", domain.Science, "a1.net0").SentBytes; now < sent {
		w.t.Errorf("counted %d bytes before a restart, %d after", sent, now)
	}
	w.refused(enforce.Isolated, "a1", netip.Addr{}, w.addr("b2", 0))
}

func heals(w *world) {
	w.apply(nothing, nothing)
	held := w.heldThere()
	w.rig.Break(w.t, w.Pods["a1"].Node, w.Pods["a1"])
	if broken := w.heldThere(); broken == held {
		w.t.Fatalf("nothing was broken:\n%s", held)
	}
	w.apply(nothing, nothing)
	if now := w.heldThere(); now != held {
		w.t.Errorf("held:\n%s\nwant:\n%s", now, held)
	}
	w.refused(enforce.Isolated, "a1", netip.Addr{}, w.addr("b1", 0))
	w.talks("a1", w.addr("a2", 0))
}

// gone applies a plan with a pod whose namespace no longer exists, and then a plan
// without it.
func gone(w *world) {
	w.apply(nothing, nothing)
	held := w.heldThere()
	p := w.Plan("n1", w.turn, nothing, nothing)
	ghost := p.Local[0]
	ghost.ID, ghost.Container, ghost.NetNS, ghost.Device = "ghost.net0", "ghost", "/run/netns/ghost", "ghost"
	ghost.MAC, ghost.Addresses = "02:00:00:00:00:77", []netip.Prefix{netip.MustParsePrefix("10.1.0.77/24")}
	p.Local = append(p.Local, ghost)
	if err := w.all["n1"].Apply(w.t.Context(), p); err != nil {
		w.t.Errorf("a pod that is gone: %v", err)
	}
	w.talks("a1", w.addr("a2", 0))
	w.apply(nothing, nothing)
	if now := w.heldThere(); now != held {
		w.t.Errorf("held:\n%s\nwant:\n%s", now, held)
	}
}

func shrinks(w *world) {
	w.apply(nothing, nothing)
	for _, name := range w.nodes() {
		if err := w.all[name].Apply(w.t.Context(), vdn.Plan{Revision: w.turn}); err != nil {
			w.t.Fatal(err)
		}
	}
	if held := w.heldThere(); held != "" {
		w.t.Errorf("left over by an empty plan:\n%s", held)
	}
	w.apply(nothing, nothing)
	for _, name := range w.nodes() {
		if err := w.all[name].Remove(); err != nil {
			w.t.Fatal(err)
		}
		delete(w.all, name)
	}
	if held := w.heldThere(); held != "" {
		w.t.Errorf("left over by Remove:\n%s", held)
	}
}
