package xdp

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/testkit"
	"github.com/fairlead/fairlead/internal/version"
	"github.com/fairlead/fairlead/service"
)

// load is what comes in at a measurement.
type load struct {
	name  string
	flows uint64 // a power of two; 0: every packet is a new one
	vips  uint64 // likewise a power of two
}

var loads = []load{
	{"1 flow", 1, 1}, {"1 k flows", 1 << 10, 1}, {"64 k flows", 1 << 16, 1}, {"1 M flows", 1 << 20, 1},
	{"every packet new", 0, 1}, {"1 k VIPs and 1 M flows", 1 << 20, 1 << 10},
}

// subject is what is measured: a program, and the frontends it has.
type subject struct {
	name      string
	program   string
	method    service.Method
	scheduler service.Scheduler
	v6, udp   bool
	away      uint16 // another port: not served
	elsewhere bool   // another address: not a VIP
	want      verdict
	loads     []load
}

var subjects = []subject{
	{name: "floor: return XDP_TX", program: "floor_tx", want: tx, loads: loads},
	{name: "floor: parse", program: "floor_parse", want: tx, loads: loads},
	{name: "tunnel, maglev", method: service.Tunnel, scheduler: service.Maglev, want: tx, loads: loads},
	{name: "tunnel, maglev, IPv6", method: service.Tunnel, scheduler: service.Maglev, v6: true, want: tx, loads: loads[:4]},
	{name: "direct-nat, maglev", method: service.DirectNAT, scheduler: service.Maglev, want: tx, loads: loads},
	{name: "tunnel, rr, UDP", method: service.Tunnel, scheduler: service.RoundRobin, udp: true, want: tx, loads: loads[:5]},
	{name: "fullnat, maglev, UDP", method: service.FullNAT, scheduler: service.Maglev, udp: true, want: tx, loads: loads[:3]},
	{name: "not a VIP", method: service.Tunnel, scheduler: service.Maglev, elsewhere: true, want: pass, loads: loads[:4]},
	{name: "not served", method: service.Tunnel, scheduler: service.Maglev, away: 81, want: drop, loads: loads[:4]},
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

// prepare writes the frontends: four backends each. A VIP alone has a ring of
// 65537 slots, one of many has 1021.
func (s subject) prepare(b *testing.B, d *DataPlane, vips int) {
	b.Helper()
	if s.method == "" {
		return
	}
	protocol := map[bool]service.Protocol{false: service.TCP, true: service.UDP}[s.udp]
	for i := range vips {
		var backends []string
		for j := range 4 {
			server := netip.AddrFrom4([4]byte{172, 16, 8 + byte(i>>6), 1 + byte(i&63)*4 + byte(j)})
			if s.v6 {
				server = netip.AddrFrom16([16]byte{0xfd, 5, 14: byte(i), 15: byte(j + 1)})
			}
			backends = append(backends, netip.AddrPortFrom(server, 8080).String())
		}
		f := frontend(s.method, netip.AddrPortFrom(s.vip(i), 80).String(), protocol, backends...)
		f.Scheduler, f.RingSize = s.scheduler, 65537
		if vips > 1 {
			f.RingSize = 1021
		}
		upsert(b, d, f)
	}
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
	out := &harnessBench{Flows: l.flows - 1, Vips: l.vips - 1, Vip: firstVIP}
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
		b.Errorf("%d of %d packets were not judged %v: %v", wrong, total, s.want, out.verdicts)
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
	var figures []figure
	floors := map[string][2]float64{} // by load
	for _, s := range subjects {
		b.Run(s.name, func(b *testing.B) {
			for _, l := range s.loads {
				b.Run(l.name, func(b *testing.B) {
					n := newNet(b)
					c := config()
					c.MaxFrontends, c.MaxBackends, c.MaxFlows = 1024, 4096, DefaultMaxFlows
					d := n.open(b, c)
					s.prepare(b, d, int(l.vips))
					f := s.measure(b, n, d, l)
					figures = append(figures, f)
					switch floor := floors[l.name]; s.program {
					case "floor_tx":
						floors[l.name] = [2]float64{f.min()}
					case "floor_parse":
						floors[l.name] = [2]float64{floor[0], f.min()}
					}
					report(b, f, floors[l.name])
				})
			}
		})
	}
	must(b, writeFigures("../../out/bench/dataplane.json", began, figures, floors))
}

func report(b *testing.B, f figure, floors [2]float64) {
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(f.min(), "ns/packet-min")
	b.ReportMetric(f.median(), "ns/packet-median")
	for i, name := range []string{"x-XDP_TX", "x-parse"} {
		if floors[i] > 0 {
			b.ReportMetric(f.min()/floors[i], name)
		}
	}
	b.ReportMetric(100*f.misses, "%miss")
	b.Logf("%d runs, verdicts %v", len(f.all), f.verdicts)
}

// benchRow is a row of the benchmarks' common form.
type benchRow struct {
	Case     string  `json:"case"`
	Measured float64 `json:"measured"`
	Unit     string  `json:"unit"`
	Min      float64 `json:"min"`
	Max      float64 `json:"max"`
	Runs     int     `json:"runs"`
}

// writeFigures writes them in the form that all benchmarks have. measured is
// the median.
func writeFigures(path string, began time.Time, figures []figure, floors map[string][2]float64) error {
	var rows []benchRow
	notes := []string{
		"measured is the median; CPU time of one pinned thread, the harness's own share included",
		fmt.Sprintf("four backends a frontend; flow tables of %d entries", DefaultMaxFlows),
	}
	for _, f := range figures {
		name := f.subject + ", " + f.load
		rows = append(rows, benchRow{name, f.median(), "ns/packet", f.min(), slices.Max(f.all), len(f.all)})
		for i, floor := range []string{"return XDP_TX", "parse"} {
			if ns := floors[f.load][i]; ns > 0 {
				rows = append(rows, benchRow{name + ", over " + floor, f.median() / ns, "ratio", f.min() / ns, slices.Max(f.all) / ns, len(f.all)})
			}
		}
		notes = append(notes, fmt.Sprintf("%s: verdicts %v, flow table misses %.2f %%", name, f.verdicts, 100*f.misses))
	}
	text, err := json.MarshalIndent(map[string]any{
		"name": "dataplane", "commit": version.String(), "machine": machine(), "kernel": version.Kernel(),
		"started": began.UTC().Format(time.RFC3339), "rows": rows, "notes": notes,
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
