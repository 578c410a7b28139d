package serverhalf

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/testkit"
	"github.com/fairlead/fairlead/internal/version"
	"github.com/fairlead/fairlead/service"
)

// rig is the programs of bpf/bench/server.c on the maps of a half.
type rig struct {
	serverBenchObjects
	n     *node
	state serverBenchServerBench
	frame []byte
}

func newRig(b *testing.B, n *node) *rig {
	b.Helper()
	spec, err := loadServerBench()
	if err != nil {
		b.Fatal(err)
	}
	if err := n.half.fitMaps(spec); err != nil {
		b.Fatal(err)
	}
	if err := spec.Variables["flow_sets"].Set(spec.Maps[serverMapServerFlows].MaxEntries); err != nil {
		b.Fatal(err)
	}
	r := &rig{n: n}
	opts := &ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: n.half.dir.Path(layout)}}
	if err := spec.LoadAndAssign(&r.serverBenchObjects, opts); err != nil {
		b.Fatalf("%+v", err)
	}
	b.Cleanup(func() { r.Close() })
	return r
}

// set has the rig send frames like w's, of so many flows, a power of two; the
// client's address and port are at these places.
func (r *rig) set(b *testing.B, w wire, head, addr, port int, flows uint32) {
	b.Helper()
	r.frame = w.bytes(b)
	r.state = serverBenchServerBench{Bytes: uint32(head), Len: uint32(len(r.frame)), Addr: uint32(addr), Port: uint32(port), Flows: flows - 1}
	copy(r.state.Head[:], r.frame[:head])
	if err := r.ServerBench.Put(uint32(0), r.state); err != nil {
		b.Fatal(err)
	}
}

// run gives the thread's CPU time, in nanoseconds, of each of so many packets.
func (r *rig) run(b *testing.B, prog *ebpf.Program, packets uint32, want int) float64 {
	b.Helper()
	var context [48]uint32
	context[10] = uint32(r.n.pod)
	opts := ebpf.RunOptions{Data: r.frame, Repeat: packets, Context: context[:]}
	var took time.Duration
	testkit.Do(b, r.n.ns, func() error {
		began := threadTime(b)
		verdict, err := prog.Run(&opts)
		took = threadTime(b) - began
		if err == nil && int(int32(verdict)) != want {
			err = fmt.Errorf("verdict %d, want %d", int32(verdict), want)
		}
		return err
	})
	return float64(took.Nanoseconds()) / float64(packets)
}

func threadTime(b *testing.B) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

// benchRow is a row of the benchmarks' common form.
type benchRow struct {
	Case     string   `json:"case"`
	Measured float64  `json:"measured"`
	Unit     string   `json:"unit"`
	Min      float64  `json:"min"`
	Max      float64  `json:"max"`
	Runs     int      `json:"runs"`
	Goal     *float64 `json:"goal,omitempty"`
	Met      *bool    `json:"met,omitempty"`
}

// newRow has the median of some figures; goal 0: none.
func newRow(name string, all []float64, goal float64) benchRow {
	slices.Sort(all)
	row := benchRow{Case: name, Measured: all[len(all)/2], Unit: "ns/packet", Min: all[0], Max: all[len(all)-1], Runs: len(all)}
	if goal > 0 {
		met := row.Measured <= goal
		row.Goal, row.Met = &goal, &met
	}
	return row
}

const benchPackets, benchRuns = 1 << 17, 7

// costs are what the harness adds to a packet, measured in the same minute.
type costs struct{ empty, store, grow float64 }

func (r *rig) costs(b *testing.B) costs {
	least := func(prog *ebpf.Program) float64 {
		ns := r.run(b, prog, benchPackets, untouched)
		for range benchRuns - 1 {
			ns = min(ns, r.run(b, prog, benchPackets, untouched))
		}
		return ns
	}
	empty := least(r.BenchEmpty)
	return costs{empty: empty, store: least(r.BenchStore) - empty, grow: (least(r.BenchRooms) - least(r.BenchRoom)) / 7}
}

// BenchmarkServerHalf measures packets of known flows, both ways. A figure is a
// packet's whole time in BPF_PROG_TEST_RUN, its own loop among it, less what
// restoring the packet costs by itself.
func BenchmarkServerHalf(b *testing.B) {
	began := time.Now()
	var rows []benchRow
	var notes []string
	n := newNode(b)
	e := []Entry{entry(service.Tunnel, vip, pod, service.TCP), entry(service.DirectNAT, vip, ap("172.16.1.2:9090"), service.TCP)}
	if err := n.half.Set(e); err != nil {
		b.Fatal(err)
	}
	r := newRig(b, n)
	if err := r.RowsGeneration.Set(uint32(1)); err != nil { // as the agent has it
		b.Fatal(err)
	}
	bench := func(name string, flows uint32, prog *ebpf.Program, want int, grows bool, goal float64) {
		c := r.costs(b)
		added := c.store
		if grows {
			added += c.grow
		}
		r.run(b, prog, max(benchPackets, flows), want) // makes the flows
		var all []float64
		for range benchRuns {
			all = append(all, r.run(b, prog, max(benchPackets, flows), want)-added)
		}
		row := newRow(name, all, goal)
		rows = append(rows, row)
		notes = append(notes, fmt.Sprintf("%s: empty program %.1f, writing the headers %.1f, making room %.1f ns", name, c.empty, c.store, c.grow))
		b.Logf("%-60s min %.1f median %.1f (empty %.1f, store %.1f, grow %.1f)", name, row.Min, row.Measured, c.empty, c.store, c.grow)
	}
	const eth, ip, tcp = 14, 20, 20
	scenes := func(aged string) {
		for _, flows := range []uint32{1, 1 << 10, 1 << 16} {
			of := fmt.Sprintf(", %d flows%s", flows, aged)
			r.set(b, wire{client: client, dst: vip, tunnel: pod.Addr(), payload: "twenty-six bytes of data.."}, eth+2*ip+tcp, eth+ip+12, eth+2*ip, flows)
			bench("server's half, known flow"+of, flows, r.BenchToServer, untouched, true, 120)
			r.set(b, wire{client: client, dst: ap("172.16.1.2:9090"), option: list{vip}, payload: "twenty-six bytes of data.."}, eth+ip+8+tcp, eth+12, eth+ip+8, flows)
			r.run(b, r.BenchToServer, max(benchPackets, flows), untouched)
			r.set(b, wire{client: client, dst: ap("172.16.1.2:9090"), payload: "twenty-six bytes of data.."}, eth+ip+tcp, eth+12, eth+ip, flows)
			bench("server's half, direct-nat, known flow"+of, flows, r.BenchToServer, untouched, false, 0)
			r.set(b, wire{client: pod, dst: client, ttl: 64, payload: "twenty-six bytes of data.."}, eth+ip+tcp, eth+16, eth+ip+2, flows)
			bench("server's half, answer"+of, flows, r.BenchFromServer, sent, false, 0)
		}
	}
	scenes("")
	// Four times as many flows as there is room for.
	r.set(b, wire{client: client, dst: vip, tunnel: pod.Addr(), udp: true, payload: "x"}, eth+2*ip+8, eth+ip+12, eth+2*ip, 1<<21)
	if err := n.half.Set(append(e, entry(service.Tunnel, vip, pod, service.UDP))); err != nil {
		b.Fatal(err)
	}
	r.run(b, r.BenchToServer, 1<<21, untouched)
	scenes(", aged table")
	for b.Loop() { // the figures above are the benchmark
	}
	if err := writeRows("../../out/bench/serverhalf.json", began, rows, notes); err != nil {
		b.Fatal(err)
	}
}

func writeRows(path string, began time.Time, rows []benchRow, notes []string) error {
	notes = append([]string{
		"measured is the median: CPU time of a packet in BPF_PROG_TEST_RUN, its loop included, less what writing the packet anew and making room for its outer header cost by themselves (bpf/bench/server.c)",
	}, notes...)
	text, err := json.MarshalIndent(map[string]any{
		"name": "serverhalf", "commit": version.String(), "machine": fmt.Sprintf("%s, %d CPUs", runtime.GOARCH, runtime.NumCPU()),
		"kernel": version.Kernel(), "started": began.UTC().Format(time.RFC3339), "rows": rows, "notes": notes,
	}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
