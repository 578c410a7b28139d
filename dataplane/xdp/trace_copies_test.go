package xdp

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
	"github.com/fairlead/fairlead/dataplane/xdp/observe"
	"github.com/fairlead/fairlead/dataplane/xdp/program"
	"github.com/fairlead/fairlead/lab/testkit"
)

// contents are the bytes of all maps of a data plane, by map and key.
type contents map[string]map[string]string

// contentsOf reads every map that the attached programs use, byte for byte. Reading has
// no side effects: the kernel does not mark an LRU entry as used when user space reads
// it.
func contentsOf(t testing.TB, d *DataPlane) contents {
	t.Helper()
	all := contents{}
	for name, m := range program.ByName(d.kernel.BalancerMaps) {
		all[name] = entriesOf(t, name, m)
	}
	all[program.SettingsSection] = entriesOf(t, program.SettingsSection, d.kernel.Settings)
	var clock uint64
	must(t, d.kernel.FlowClock.Get(&clock))
	all["flow_clock"] = map[string]string{"": fmt.Sprint(clock)}
	return all
}

func entriesOf(t testing.TB, name string, m *ebpf.Map) map[string]string {
	t.Helper()
	switch {
	case m.Type() == ebpf.PerfEventArray:
		return nil // has readers, but no contents
	case m.Type() == ebpf.RingBuf:
		return map[string]string{"producer": string(pageOf(t, m))}
	case m.Flags()&unix.BPF_F_MMAPABLE != 0:
		memory, err := m.Memory()
		must(t, err)
		all := make([]byte, memory.Size())
		_, err = memory.ReadAt(all, 0)
		must(t, err)
		entries := map[string]string{}
		for at, chunk := 0, 64; at < len(all); at += chunk {
			entries[fmt.Sprint("byte ", at)] = string(all[at:min(at+chunk, len(all))])
		}
		return entries
	}
	return eachEntry(t, name, m)
}

// pageOf returns the page of a ring buffer with its fill level.
func pageOf(t testing.TB, m *ebpf.Map) []byte {
	t.Helper()
	page := os.Getpagesize()
	memory, err := unix.Mmap(m.FD(), int64(page), page, unix.PROT_READ, unix.MAP_SHARED)
	must(t, err)
	defer unix.Munmap(memory)
	return slices.Clone(memory)
}

func eachEntry(t testing.TB, name string, m *ebpf.Map) map[string]string {
	t.Helper()
	entries := map[string]string{}
	perCPU := m.Type() == ebpf.PerCPUArray
	var key, value []byte
	var values [][]byte
	for it := m.Iterate(); ; {
		into := any(&value)
		if perCPU {
			into = &values
		}
		if !it.Next(&key, into) {
			must(t, it.Err())
			return entries
		}
		if perCPU {
			value = slices.Concat(values...)
		}
		entries[fmt.Sprintf("%x", key)] = string(value)
		if m.Type() == ebpf.HashOfMaps || m.Type() == ebpf.ArrayOfMaps {
			id := ebpf.MapID(uint32(value[0]) | uint32(value[1])<<8 | uint32(value[2])<<16 | uint32(value[3])<<24)
			inner, err := ebpf.NewMapFromID(id)
			must(t, err)
			for k, v := range entriesOf(t, name, inner) {
				entries[fmt.Sprintf("%x/%s", key, k)] = v
			}
			inner.Close()
		}
	}
}

// differences lists the entries that differ.
func (before contents) differences(after contents) (all []string) {
	for name, was := range before {
		is := after[name]
		keys := maps.Clone(was)
		maps.Copy(keys, is)
		for key := range keys {
			if was[key] != is[key] {
				all = append(all, fmt.Sprintf("%s[%s]: %x, was %x", name, key, is[key], was[key]))
			}
		}
	}
	slices.Sort(all)
	return all
}

// tracedFrontend is a frontend for traced packets, and the extent of the test.
type tracedFrontend struct {
	name string
	desired.Frontend
	all bool // packets of all kinds
}

// tracedFrontends are of every forwarding mode, stateful and stateless, of every
// scheduler, with affinity, limits and a port range.
func tracedFrontends(v6 bool) (all []tracedFrontend) {
	backends := map[bool][]string{
		false: {"172.16.5.1:8080", "172.16.5.2:8080", "172.16.5.3:8080"},
		true:  {"[fd05::1]:8080", "[fd05::2]:8080", "[fd05::3]:8080"},
	}[v6]
	vip := netip.MustParseAddrPort(vips[v6]).Addr()
	add := func(name string, method service.Method, every bool, change func(*desired.Frontend)) {
		to := netip.AddrPortFrom(vip, uint16(1000+len(all))).String()
		f := frontend(method, to, service.TCP, backends...)
		if change != nil {
			change(&f)
		}
		all = append(all, tracedFrontend{name, f, every})
	}
	remembers := func(f *desired.Frontend) { f.Survival = service.FlowTable }
	scheduled := func(s service.Scheduler) func(*desired.Frontend) {
		return func(f *desired.Frontend) { f.Survival, f.Scheduler = service.FlowTable, s }
	}
	for _, m := range []service.Method{service.Tunnel, service.DSRNAT} {
		add(string(m)+", stateless", m, m == service.Tunnel, nil)
		add(string(m)+", stateful", m, false, remembers)
	}
	for _, survival := range []service.Survival{service.SecondChance, service.FlowTable} {
		add("dr, "+string(survival), service.DR, false, func(f *desired.Frontend) {
			onLink := map[bool]string{false: "172.16.0.1", true: "fd00::1"}[v6]
			f.Survival = survival
			f.Backends = []service.Backend{{Addr: netip.AddrPortFrom(netip.MustParseAddr(onLink), f.Port), Weight: 1}}
		})
	}
	add("nat", service.NAT, true, scheduled(service.RoundRobin))
	add("fullnat", service.FullNAT, true, remembers)
	for _, s := range []service.Scheduler{
		service.RoundRobin, service.WeightedRoundRobin, service.LeastConn, service.WeightedLeastConn,
		service.PowerOfTwo, service.SourceHash, service.DestinationHash,
	} {
		add(string(s), service.Tunnel, false, scheduled(s))
	}
	limits := service.Limits{ClientPackets: 200, ClientOpens: 100, Packets: 100000, Opens: 50000}
	add("affinity and limits", service.Tunnel, true, func(f *desired.Frontend) {
		f.Survival, f.Scheduler, f.Affinity, f.Limits = service.FlowTable, service.RoundRobin, time.Hour, limits
	})
	add("limits, stateless", service.Tunnel, false, func(f *desired.Frontend) { f.Limits = limits })
	add("source ranges", service.Tunnel, false, func(f *desired.Frontend) { f.Deny = prefixes("192.168.0.3/32", "2001:db8::3/128") })
	add("port range", service.Tunnel, false, func(f *desired.Frontend) {
		f.Survival, f.Scheduler, f.Last = service.FlowTable, service.RoundRobin, f.Port+50
		for i, b := range f.Backends {
			f.Backends[i].Addr = netip.AddrPortFrom(b.Addr.Addr(), 0)
		}
	})
	return all
}

// known are the live packets of each frontend before the traces: an open flow, and one
// with a first fragment.
func (f tracedFrontend) known() packet {
	client := netip.AddrPortFrom(netip.MustParseAddr(addrOf(clients[f.VIP.Is6()])), 5000+f.Port)
	return packet{src: client.String(), dst: netip.AddrPortFrom(f.VIP, f.Port).String(), flags: "S"}
}

// fragmentOf returns a fragment of a known flow's packet.
func (f tracedFrontend) fragmentOf(t testing.TB, id uint16, which int) []byte {
	p := f.known()
	p.flags, p.payload = "A", 200
	return fragments(p.bytes(t), id, 64)[which]
}

// live opens the flow, in the load balancer's namespace. It returns the output frame of
// the flow's first packet.
func (f tracedFrontend) live(t testing.TB, n *testNet, d *DataPlane) (out []byte) {
	p := f.known()
	for _, flags := range []string{"S", "A"} {
		p.flags = flags
		v, b, err := n.runHere(d, p.bytes(t))
		must(t, err)
		if out == nil {
			out = b
		}
		if v != redirect {
			t.Fatalf("%s: live packet %s: %v, %v", f.name, flags, v, d.Describe().Drops)
		}
	}
	_, _, err := n.runHere(d, f.fragmentOf(t, f.Port, 0))
	must(t, err)
	return out
}

// frames are the packets to trace. left is the output of the known flow's first packet.
func (f tracedFrontend) frames(t testing.TB, left []byte) map[string][]byte {
	v6 := f.VIP.Is6()
	p := f.known()
	with := func(change func(*packet)) []byte {
		q := p
		change(&q)
		return q.bytes(t)
	}
	client := netip.MustParseAddr(addrOf(clients[v6]))
	unknown, third := netip.AddrPortFrom(client, 999).String(), netip.AddrPortFrom(client.Next(), 999).String()
	all := map[string][]byte{
		"a new flow":      with(func(p *packet) { p.src = unknown }),
		"of a known flow": with(func(p *packet) { p.flags = "A" }),
	}
	if !f.all {
		return all
	}
	maps.Copy(all, map[string][]byte{
		"unknown, no SYN":     with(func(p *packet) { p.src, p.flags = unknown, "A" }),
		"of a third client":   with(func(p *packet) { p.src = third }),
		"too big":             with(func(p *packet) { p.flags, p.payload = "A", 1600 }),
		"SYN of a known flow": p.bytes(t),
		"FIN":                 with(func(p *packet) { p.flags = "FA" }),
		"RST":                 with(func(p *packet) { p.flags = "R" }),
		"TTL 1":               with(func(p *packet) { p.ttl = 1 }),
		"malformed":           p.bytes(t)[:len(p.bytes(t))-2],
		"a new flow, VLAN":    tagged(with(func(p *packet) { p.src = unknown }), 7),
		"first fragment":      f.fragmentOf(t, 60000, 0),
		"fragment, known":     f.fragmentOf(t, f.Port, 1),
		"fragment, unknown":   f.fragmentOf(t, 60001, 1),
		"error, known":        f.icmpError(t, p.src),
		"error, unknown":      f.icmpError(t, unknown),
		"to no frontend":      with(func(p *packet) { p.dst = netip.AddrPortFrom(f.VIP, 9).String() }),
		"an echo": icmp{packet: packet{src: addrOf(p.src), dst: addrOf(p.dst)}, kind: map[bool]byte{false: 8, true: 128}[v6],
			body: make([]byte, 64)}.bytes(t),
	})
	if f.Method == service.NAT || f.Method == service.FullNAT {
		all["an answer"] = turned(t, left, v6, false)
		all["an answer's RST"] = turned(t, left, v6, true)
	}
	return all
}

// icmpError is a router's error about a packet from the VIP to a client.
func (f tracedFrontend) icmpError(t testing.TB, client string) []byte {
	v6 := f.VIP.Is6()
	kind := errorKinds[v6][1]
	quoted := packet{src: f.known().dst, dst: client, flags: "SA"}.bytes(t)[14:]
	return icmp{packet: packet{src: routers[v6], dst: f.VIP.String()}, kind: kind[0], code: kind[1], body: quoted}.bytes(t)
}

// turned is a backend's reply to an output frame.
func turned(t testing.TB, left []byte, v6, reset bool) []byte {
	t.Helper()
	at, size := 26, 4
	if v6 {
		at, size = 22, 16
	}
	addr := func(at int) netip.Addr { a, _ := netip.AddrFromSlice(left[at : at+size]); return a }
	port := func(at int) uint16 { return uint16(left[at])<<8 | uint16(left[at+1]) }
	l4 := at + 2*size
	p := packet{
		src: netip.AddrPortFrom(addr(at+size), port(l4+2)).String(), dst: netip.AddrPortFrom(addr(at), port(l4)).String(), flags: "SA",
	}
	if reset {
		p.flags = "R"
	}
	return p.bytes(t)
}

// No trace changes a single byte in any map of the data plane.
func TestTraceChangesNothing(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		t.Run(fmt.Sprintf("v6 %v", v6), func(t *testing.T) {
			n := newNet(t)
			c := config()
			c.MaxFlows, c.MaxChains = 256, 64 // full sets, where flows evict others
			d := n.open(t, c)
			d.sweeper.close() // it writes, too
			all := tracedFrontends(v6)
			left := map[string][]byte{}
			for _, f := range all {
				upsert(t, d, f.Frontend)
				testkit.Do(t, n.balancer, func() error {
					left[f.name] = f.live(t, n, d)
					return nil
				})
			}
			fillFlows(t, n, d, all)
			for _, f := range all {
				if !v6 || f.Method == service.FullNAT { // which differs most between the families
					n.unchanged(t, d, f.name, f.frames(t, left[f.name]))
				}
			}
		})
	}
}

// fillFlows opens flows until hardly any set has a free entry.
func fillFlows(t *testing.T, n *testNet, d *DataPlane, all []tracedFrontend) {
	t.Helper()
	for _, f := range all {
		if f.name != string(service.RoundRobin) {
			continue
		}
		testkit.Do(t, n.balancer, func() error {
			for port := range 2 * d.config.MaxFlows {
				p := f.known()
				p.src = netip.AddrPortFrom(netip.MustParseAddr(addrOf(p.src)), uint16(30000+port)).String()
				if _, _, err := n.runHere(d, p.bytes(t)); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// unchanged traces frames and compares all maps before and after.
func (n *testNet) unchanged(t *testing.T, d *DataPlane, name string, frames map[string][]byte) {
	t.Helper()
	before := contentsOf(t, d)
	for _, kind := range slices.Sorted(maps.Keys(frames)) {
		got := n.trace(t, d, TraceRequest{Frame: frames[kind]})
		t.Logf("%s, %s: %s %s, would %q", name, kind, got.Verdict, got.Drop, got.Would)
	}
	if differ := before.differences(contentsOf(t, d)); len(differ) > 0 {
		t.Errorf("%s: traces have changed\n%s", name, strings.Join(differ, "\n"))
	}
}

// The same for packets for which another load balancer is queried, or that it handed
// over.
func TestTraceOfHandoverChangesNothing(t *testing.T) {
	p := newPair(t, service.FullNAT, false, 1500)
	for _, d := range []*DataPlane{p.b, p.d} {
		d.sweeper.close()
	}
	unknown := p.unknownFlow(777)
	unknown.flags = "A"
	_, handed := p.stays.run(t, p.b, p.known.bytes(t))
	_, asked := p.stays.run(t, p.b, unknown.bytes(t))
	big := unknown
	big.payload = 1500
	p.stays.unchanged(t, p.b, "asks", map[string][]byte{
		"known elsewhere": p.known.bytes(t), "unknown": unknown.bytes(t), "too big": big.bytes(t),
		"first fragment": fragments(big.bytes(t), 7, 800)[0],
	})
	p.leaves.unchanged(t, p.d, "is asked", map[string][]byte{"known": handed, "unknown": asked})
}

// Traces concurrent with live packets: what these have written is there, and nothing
// else.
func TestTraceDuringTraffic(t *testing.T) {
	n := newNet(t)
	c := config()
	c.MaxFlows = 1 << 17 // with high probability, no set overflows
	d := n.open(t, c)
	f := stateful(service.RoundRobin, 3)
	f.Limits = service.Limits{ClientPackets: 1e6, Packets: 1e6}
	upsert(t, d, f)
	var stop atomic.Bool
	ended := make(chan error, 1)
	opened := 0
	go func() {
		ended <- n.balancer.Do(func() error {
			for ; !stop.Load() && opened < 2000; opened++ {
				if _, _, err := n.runHere(d, packet{src: clientOf(opened), dst: vips[false], flags: "S"}.bytes(t)); err != nil {
					return err
				}
			}
			return nil
		})
	}()
	for i := range 8 {
		n.trace(t, d, TraceRequest{Frame: packet{src: fmt.Sprint("198.51.100.9:", 100+i), dst: vips[false], flags: "S"}.bytes(t)})
		n.trace(t, d, TraceRequest{Frame: packet{src: clientOf(i), dst: vips[false], flags: "A"}.bytes(t)})
	}
	stop.Store(true)
	must(t, <-ended)
	var turn bpf.BalancerFrontend
	must(t, d.kernel.Frontends.Lookup(entry.ToKey(f.Key), &turn))
	remembered, err := d.Remembered()
	must(t, err)
	counters, err := d.Counters()
	must(t, err)
	if int(turn.Turn) != opened || remembered != opened || int(counters[0].Total.Packets) != opened || int(counters[0].Total.Flows) != opened {
		t.Errorf("after %d flows the turn is %d, %d are remembered, %+v counted", opened, turn.Turn, remembered, counters[0].Total)
	}
	if opened < 2 {
		t.Fatal("no traffic during the traces")
	}
}

// The kernel's verifier accepts the traced programs on live maps that no program may
// write: so no path writes them, whatever the packet.
func TestTraceCannotWriteLiveMaps(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	must(t, d.Prepare())
	spec, err := d.observer.TracerSpec()
	must(t, err)
	unwritable := []ebpf.MapType{ebpf.Array, ebpf.PerCPUArray, ebpf.Hash, ebpf.LRUHash}
	for _, name := range append(slices.Collect(maps.Keys(program.ByName(d.kernel.BalancerMaps))), program.SettingsSection) {
		m := spec.Maps[name]
		if slices.Contains(observe.PrivateMaps, name) {
			continue
		}
		if slices.Contains(unwritable, m.Type) {
			m.Flags |= unix.BPF_F_RDONLY_PROG
		}
		if m.InnerMap != nil {
			m.InnerMap.Flags |= unix.BPF_F_RDONLY_PROG
		}
	}
	for _, m := range spec.Maps {
		m.Pinning = ebpf.PinNone
	}
	for name, p := range spec.Programs { // to buffers that may always be written
		for _, i := range p.Instructions {
			if m := i.Reference(); m == bpf.BalancerMapOrphans || m == bpf.BalancerMapDropEvents {
				t.Errorf("program %s uses %s", name, m)
			}
		}
	}
	loaded, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	loaded.Close()
}

// A trace predicts what happens to the packet with the live state.
func TestTraceSeesLiveState(t *testing.T) {
	bothFamilies(t, func(t *testing.T, v6 bool) {
		n := newNet(t)
		d := n.open(t, config())
		for _, f := range tracedFrontends(v6) {
			if !f.all {
				continue
			}
			upsert(t, d, f.Frontend)
			live := func() {
				testkit.Do(t, n.balancer, func() error {
					f.live(t, n, d)
					return nil
				})
			}
			live()
			p := f.known()
			unknown := p
			unknown.src = netip.AddrPortFrom(netip.MustParseAddr(addrOf(p.src)), 999).String()
			frames := [][]byte{f.fragmentOf(t, f.Port, 1), unknown.bytes(t), p.bytes(t)}
			for _, flags := range []string{"A", "FA", "R"} {
				p.flags = flags
				frames = append(frames, p.bytes(t))
			}
			for i, frame := range frames {
				// A first fragment is remembered for two seconds; on a busy machine a
				// trace may take longer.
				got, v, out := traceAndRun(t, n, d, frame)
				for try := 0; v != redirect && try < 10; try++ {
					live()
					got, v, out = traceAndRun(t, n, d, frame)
				}
				if got.Verdict != "XDP_REDIRECT" || v != redirect || !bytes.Equal(out, got.Out) {
					t.Errorf("%s, frame %d: traced %s %x\n%s\nruns %v %x", f.name, i, got.Verdict, got.Out, words(got), v, out)
				}
			}
		}
	})
}

// traceAndRun traces a frame and then runs it.
func traceAndRun(t *testing.T, n *testNet, d *DataPlane, frame []byte) (got Trace, v verdict, out []byte) {
	t.Helper()
	got = n.trace(t, d, TraceRequest{Frame: frame})
	v, out = n.run(t, d, frame)
	return got, v, out
}

// A trace is rejected if the limits would reject the packet, and uses up none of them.
func TestTraceAsksLimits(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	upsert(t, d, guardedFrontend(nil, nil, service.Limits{ClientPackets: 1}))
	frame := from(t, netip.MustParseAddr("192.0.2.7"), "S")
	for left := 8; left > 0; left-- {
		if got := n.trace(t, d, TraceRequest{Frame: frame}); got.Verdict != "XDP_REDIRECT" || !slices.Equal(got.Would, []string{"consume rate limit tokens"}) {
			t.Errorf("%d left: %s %s %q", left, got.Verdict, got.Drop, got.Would)
		}
		for ; left > 1; left-- {
			n.run(t, d, frame)
		}
	}
	// A second brings another packet, and on a busy machine a trace may take that long.
	var got Trace
	for try := 0; try < 10 && got.Drop == ""; try++ {
		for v := redirect; v == redirect; {
			v, _ = n.run(t, d, frame)
		}
		got = n.trace(t, d, TraceRequest{Frame: frame})
	}
	if got.Drop != "rate-limited" || len(got.Would) > 0 {
		t.Errorf("none left: %s %s %q", got.Verdict, got.Drop, got.Would)
	}
}
