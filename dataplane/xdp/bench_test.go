package xdp

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/internal/testkit"
	"github.com/fairlead/fairlead/internal/version"
	"github.com/fairlead/fairlead/service"
)

// load is what comes in at a measurement.
type load struct {
	name  string
	flows uint64 // a power of two; 0: every packet is a new one
	vips  uint64
}

var loads = []load{
	{"1 flow", 1, 1}, {"1 k flows", 1 << 10, 1}, {"64 k flows", 1 << 16, 1}, {"1 M flows", 1 << 20, 1},
	{"every packet new", 0, 1}, {"1 k VIPs and 1 M flows", 1 << 20, 1000},
}

// few are the loads that the goals name; many is the one of many VIPs.
var (
	few  = []load{loads[0], loads[3], loads[4]}
	many = []load{{"10 k VIPs and 1 M flows", 1 << 20, 10000}}
)

// subject is what is measured: a program, and the frontends it has.
type subject struct {
	name      string
	program   string
	method    service.Method
	scheduler service.Scheduler
	gue       bool
	chain     bool // every slot has older owners
	servers   int  // of each frontend, shared by all; 0: four of its own
	v6, udp   bool
	away      uint16 // another port: not served
	elsewhere bool   // another address: not a VIP
	want      verdict
	loads     []load
	goal      float64 // nanoseconds on the machine where floorBare takes bareNS
	peer      string
	peers     []float64 // its nanoseconds there, by load
}

// floorBare is the floor that the goals are scaled by: a bare stateless
// balancer, which takes bareNS on the machine that they were written for.
const (
	floorBare = "floor_bare"
	bareNS    = 36
)

var subjects = []subject{
	{name: "floor: return XDP_TX", program: "floor_tx", want: tx, loads: loads},
	{name: "floor: parse", program: "floor_parse", want: tx, loads: loads},
	{name: "floor: a bare stateless balancer", program: floorBare, want: tx, loads: loads[:5]},
	{name: "floor: a bare balancer with a flow table", program: "floor_bare_flows", want: tx, loads: loads[:5]},
	{name: "tunnel, second chance", method: service.Tunnel, scheduler: service.Maglev, want: tx, loads: loads, goal: 50, peer: "Katran", peers: []float64{73, 88, 312, 437, 1004, 356}},
	{name: "tunnel, second chance, a chain in every slot", method: service.Tunnel, scheduler: service.Maglev, chain: true, want: tx, loads: few, goal: 50, peer: "Katran", peers: []float64{73, 437, 1004}},
	{name: "tunnel, second chance, 100 servers shared", method: service.Tunnel, scheduler: service.Maglev, servers: 100, want: tx, loads: many, goal: 130, peer: "Katran", peers: []float64{443}},
	{name: "tunnel by GUE", method: service.Tunnel, scheduler: service.Maglev, gue: true, want: tx, loads: few, goal: 60, peer: "Katran", peers: []float64{127}},
	{name: "tunnel by GUE, a chain in every slot", method: service.Tunnel, scheduler: service.Maglev, gue: true, chain: true, want: tx, loads: few, goal: 60, peer: "Katran", peers: []float64{127}},
	{name: "tunnel, IPv6", method: service.Tunnel, scheduler: service.Maglev, v6: true, want: tx, loads: few},
	{name: "direct-nat", method: service.DirectNAT, scheduler: service.Maglev, want: tx, loads: few},
	{name: "dr", method: service.DR, scheduler: service.Maglev, want: tx, loads: few},
	{name: "tunnel, rr, UDP", method: service.Tunnel, scheduler: service.RoundRobin, udp: true, want: tx, loads: loads[:5]},
	{name: "fullnat, maglev, UDP", method: service.FullNAT, scheduler: service.Maglev, udp: true, want: tx, loads: loads[:3]},
	{name: "not a VIP", method: service.Tunnel, scheduler: service.Maglev, elsewhere: true, want: pass, loads: few, goal: 20, peer: "Katran", peers: []float64{31}},
	{name: "not served", method: service.Tunnel, scheduler: service.Maglev, away: 81, want: drop, loads: few},
}

const firstVIP = 0x0a400001 // 10.64.0.1

func (s subject) vip(i int) netip.Addr {
	n := firstVIP + i
	low := [4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
	if !s.v6 {
		return netip.AddrFrom4(low)
	}
	a := [16]byte{0x20, 0x01, 0x0d, 0xb8, 0, 1}
	copy(a[12:], low[:])
	return netip.AddrFrom16(a)
}

// frontend gives the i-th one. Unless servers are shared it has four of its own;
// a VIP alone has a ring of 65537 slots, one of many has 1021, or 7253 where a
// hundred servers are behind each.
func (s subject) frontend(i, vips int) dataplane.Frontend {
	protocol := map[bool]service.Protocol{false: service.TCP, true: service.UDP}[s.udp]
	port := uint16(8080)
	if s.method == service.DR {
		port = 80
	}
	var backends []string
	add := func(n int) {
		server := netip.AddrFrom4([4]byte{172, 16, 8 + byte(n>>8), byte(n)})
		if s.v6 {
			server = netip.AddrFrom16([16]byte{0xfd, 5, 13: 1, 14: byte(n >> 8), 15: byte(n)})
		}
		backends = append(backends, netip.AddrPortFrom(server, port).String())
	}
	if s.servers > 0 {
		for n := range s.servers {
			add(1 + n)
		}
	} else {
		for j := range 4 {
			add(1 + 8*i + j)
		}
	}
	if s.chain {
		for j := range 4 {
			add(1 + 8*i + 4 + j)
		}
	}
	f := frontend(s.method, netip.AddrPortFrom(s.vip(i), 80).String(), protocol, backends...)
	f.Scheduler, f.RingSize = s.scheduler, 65537
	if s.gue {
		f.Encapsulation = service.GUE
	}
	switch {
	case s.servers > 0:
		f.RingSize = 7253
	case vips > 1:
		f.RingSize = 1021
	}
	if s.chain { // four old ones that drain: each slot is a younger one's
		for j := range f.Backends {
			f.Backends[j].Since = time.Unix(1000, 0)
			if j < 4 {
				f.Backends[j].Weight, f.Backends[j].Since = 0, time.Unix(0, 0)
			}
		}
	}
	return f
}

// prepare writes the frontends and gives how long that took.
func (s subject) prepare(b *testing.B, n *testNet, d *DataPlane, vips int) time.Duration {
	b.Helper()
	if s.method == "" {
		return 0
	}
	if s.method == service.DR {
		testkit.Do(b, n.balancer, func() error {
			for j := range 4 {
				neighbour(b, n.eth0, fmt.Sprintf("172.16.8.%d", 1+j), macServer1)
				route(b, netlink.Route{LinkIndex: int(n.eth0), Dst: netlink.NewIPNet(net.IPv4(172, 16, 8, byte(1+j))), Scope: netlink.SCOPE_LINK})
			}
			return nil
		})
	}
	began := time.Now()
	for i := range vips {
		upsert(b, d, s.frontend(i, vips))
	}
	return time.Since(began)
}

// state is the harness's for a load.
func (s subject) state(b *testing.B, l load) *harnessBench {
	b.Helper()
	vip := s.vip(0)
	port := max(80, s.away)
	client := netip.AddrPortFrom(netip.MustParseAddr(addrOf(clients[s.v6])), 1024)
	in := packet{src: client.String(), dst: netip.AddrPortFrom(vip, port).String(), udp: s.udp, flags: "A", payload: 26}
	if l.flows == 0 {
		in.flags = "S"
	}
	if s.v6 {
		in.payload = 6
	}
	if s.udp {
		in.payload += 12
	}
	out := &harnessBench{Flows: l.flows - 1, Vips: l.vips, Vip: firstVIP}
	if s.v6 {
		out.V6 = 1
	}
	if s.elsewhere {
		out.Vip += 1 << 20
	}
	frame := in.bytes(b)
	if len(frame) != len(out.Frame)*8 {
		b.Fatalf("the frame has %d bytes", len(frame))
	}
	for i := range frame {
		out.Frame[i/8] |= uint64(frame[i]) << (i % 8 * 8)
	}
	return out
}

// figure is what one measurement gave, in nanoseconds a packet.
type figure struct {
	subject, load string
	all           []float64
	verdicts      map[string]uint64
	misses        float64 // of the flow table, of all packets
}

func (f figure) min() float64    { return slices.Min(f.all) }
func (f figure) median() float64 { return slices.Sorted(slices.Values(f.all))[len(f.all)/2] }

// measure sends a load as often as b asks for.
func (s subject) measure(b *testing.B, n *testNet, d *DataPlane, l load) figure {
	program := s.program
	if program == "" {
		program = balancerProgBalancer
	}
	r, err := newRig(d, program)
	must(b, err)
	defer r.Close()
	state := s.state(b, l)
	out := figure{subject: s.name, load: l.name, verdicts: map[string]uint64{}}
	packets := uint32(max(1<<19, l.flows))
	var before, after uint64
	testkit.Do(b, n.balancer, func() error {
		_, err := r.run(state, n.eth0, packets) // warms up, fills the flow table
		must(b, err)
		before = flowsOf(b, d)
		state.Verdicts = [8]uint64{}
		once := func() {
			ns, err := r.run(state, n.eth0, packets)
			must(b, err)
			out.all = append(out.all, ns)
		}
		for b.Loop() {
			once()
		}
		for len(out.all) < 5 {
			once()
		}
		return nil
	})
	after = flowsOf(b, d)
	total := uint64(0)
	for v, count := range state.Verdicts {
		if total += count; count > 0 {
			out.verdicts[verdict(v).String()] = count
		}
	}
	if s.udp {
		out.misses = float64(after-before) / float64(total)
	}
	if wrong := total - state.Verdicts[s.want]; wrong > total/100 {
		b.Errorf("%d of %d packets were not judged %v: %v, %v", wrong, total, s.want, out.verdicts, d.Describe().Drops)
	}
	return out
}

// flowsOf counts new flows of all frontends.
func flowsOf(b *testing.B, d *DataPlane) (sum uint64) {
	all, err := d.Counters()
	must(b, err)
	for _, c := range all {
		sum += c.Total.Flows
	}
	return sum
}

// BenchmarkProgram measures the program honestly: every packet
// whole and of its own flow, thread CPU time, floors beside.
func BenchmarkProgram(b *testing.B) {
	began := time.Now()
	t := table{floors: map[string]map[string]float64{}}
	for _, s := range subjects {
		b.Run(s.name, func(b *testing.B) {
			for i, l := range s.loads {
				b.Run(l.name, func(b *testing.B) {
					n := newNet(b)
					c := config()
					c.MaxFrontends, c.MaxBackends, c.MaxFlows = 16384, 16384, DefaultMaxFlows
					c.MaxMembers = max(65536, int(l.vips)*max(8, s.servers)*2)
					d := n.open(b, c)
					took := s.prepare(b, n, d, int(l.vips))
					f := s.measure(b, n, d, l)
					t.add(s, i, f)
					if s.servers > 0 {
						t.fill(b, s.name+", "+l.name, d, took)
					}
					t.report(b, s, f)
				})
			}
		})
	}
	must(b, t.write("../../out/bench/dataplane.json", began))
}

// table is what a run of the benchmark says.
type table struct {
	floors map[string]map[string]float64 // nanoseconds by program and load
	rows   []benchRow
	notes  []string
}

// benchRow is a row of the benchmarks' common form.
type benchRow struct {
	Case         string   `json:"case"`
	Measured     float64  `json:"measured"`
	Unit         string   `json:"unit"`
	Min          float64  `json:"min"`
	Max          float64  `json:"max"`
	Runs         int      `json:"runs"`
	Peer         string   `json:"peer,omitempty"`
	PeerMeasured *float64 `json:"peerMeasured,omitempty"`
	Goal         *float64 `json:"goal,omitempty"`
	Met          *bool    `json:"met,omitempty"`
}

// bare gives the floor of the goals: at this load, or at one flow where it is
// not measured at this.
func (t *table) bare(load string) float64 {
	if ns := t.floors[floorBare][load]; ns > 0 {
		return ns
	}
	return t.floors[floorBare][loads[0].name]
}

// add writes the rows of one figure: as measured, over the floors, and scaled
// to the machine of the goals. Minima are compared with minima: what disturbs a
// measurement only adds.
func (t *table) add(s subject, i int, f figure) {
	name := f.subject + ", " + f.load
	row := func(name, unit string, by float64) benchRow {
		return benchRow{Case: name, Measured: f.median() * by, Unit: unit, Min: f.min() * by, Max: slices.Max(f.all) * by, Runs: len(f.all)}
	}
	t.rows = append(t.rows, row(name, "ns/packet", 1))
	t.notes = append(t.notes, fmt.Sprintf("%s: verdicts %v, flow table misses %.2f %%", name, f.verdicts, 100*f.misses))
	if s.program != "" {
		if t.floors[s.program] == nil {
			t.floors[s.program] = map[string]float64{}
		}
		t.floors[s.program][f.load] = f.min()
	}
	for _, floor := range []string{"floor_tx", "floor_parse"} {
		if ns := t.floors[floor][f.load]; ns > 0 {
			t.rows = append(t.rows, row(name+", over "+floor, "ratio", 1/ns))
		}
	}
	bare := t.bare(f.load)
	if bare == 0 || s.program != "" {
		return
	}
	t.rows = append(t.rows, row(name+", over "+floorBare, "ratio", 1/bare))
	scaled := row(name+fmt.Sprintf(", scaled to %s = %d ns, minimum", floorBare, bareNS), "ns/packet", bareNS/bare)
	scaled.Measured = scaled.Min
	if s.goal > 0 {
		met := scaled.Measured <= s.goal
		scaled.Goal, scaled.Met = &s.goal, &met
	}
	if i < len(s.peers) {
		scaled.Peer, scaled.PeerMeasured = s.peer, &s.peers[i]
	}
	t.rows = append(t.rows, scaled)
}

// fill writes how long the frontends took to write, and the rings' memory.
func (t *table) fill(b *testing.B, name string, d *DataPlane, took time.Duration) {
	b.ReportMetric(took.Seconds(), "s-filling")
	slots := 0
	for _, segment := range d.ringMemory.segments {
		if segment != nil {
			slots += len(segment.words)
		}
	}
	megabytes := float64(slots*8) / 1e6
	b.ReportMetric(megabytes, "MB-rings")
	for _, r := range []struct {
		what, unit           string
		measured, goal, peer float64
	}{
		{"rings filled in", "s", took.Seconds(), 10, 179}, {"ring memory", "MB", megabytes, 600, 5200},
	} {
		met := r.measured <= r.goal
		t.rows = append(t.rows, benchRow{Case: name + ", " + r.what, Measured: r.measured, Unit: r.unit, Min: r.measured,
			Max: r.measured, Runs: 1, Peer: "Katran", PeerMeasured: &r.peer, Goal: &r.goal, Met: &met})
	}
}

func (t *table) report(b *testing.B, s subject, f figure) {
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(f.min(), "ns/packet-min")
	b.ReportMetric(f.median(), "ns/packet-median")
	if ns := t.bare(f.load); ns > 0 {
		b.ReportMetric(f.min()/ns, "x-bare")
		b.ReportMetric(f.min()/ns*bareNS, "ns-scaled")
	}
	b.ReportMetric(100*f.misses, "%miss")
	b.Logf("%d runs, verdicts %v, goal %v", len(f.all), f.verdicts, s.goal)
}

// write writes the table in the form that all benchmarks have. measured is the
// median, unless its case says otherwise.
func (t *table) write(path string, began time.Time) error {
	text, err := json.MarshalIndent(map[string]any{
		"name": "dataplane", "commit": version.String(), "machine": machine(), "kernel": version.Kernel(),
		"started": began.UTC().Format(time.RFC3339), "rows": t.rows,
		"notes": append([]string{
			"measured is the median, where the case does not say minimum; CPU time of one pinned thread, the harness's own share included",
			fmt.Sprintf("goals and peers: ns on a machine where %s takes %d; met compares the scaled figure", floorBare, bareNS),
			fmt.Sprintf("four backends a frontend where nothing else is said; flow tables of %d entries", DefaultMaxFlows),
		}, t.notes...),
	}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

func machine() string { return fmt.Sprintf("%s, %d CPUs", runtime.GOARCH, runtime.NumCPU()) }
