package peers

import (
	"context"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/design"
	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/bench/xdpbench"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// tiny has as many backends as the bare load balancers.
var tiny = size{flowTable: 1 << 12, flows: 1 << 10, vips: 20, backends: 10}

func measured(t *testing.T, m *meter) map[string]bench.Row {
	t.Helper()
	m.size, m.o.Rounds, m.o.Progress = tiny, 3, t.Output()
	r, err := m.measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bench.Row{}
	for _, row := range r.Rows {
		if _, twice := rows[row.Case]; twice {
			t.Errorf("two rows are called %q", row.Case)
		}
		if row.Measured < 0 || row.Min > row.Measured || row.Measured > row.Max || (row.Goal == nil) != (row.Met == nil) {
			t.Errorf("%+v", row)
		}
		rows[row.Case] = row
	}
	return rows
}

// Without peers, every workload has the times of our programs and of their floors, and no
// goal that needs a peer.
func TestWithoutPeers(t *testing.T) {
	rows := measured(t, &meter{})
	for _, s := range scenarios(tiny) {
		for _, w := range s.workloads {
			if !(w.aged && w.traffic.Flows > 0) && rows[w.name+": "+secondChance].Over == nil {
				t.Errorf("%s: no time of second chance with its floor", w.name)
			}
			if w.want == tx && rows[w.name+": "+flowTable].Over == nil {
				t.Errorf("%s: no time of the flow table with its floor", w.name)
			}
		}
	}
	for name, row := range rows {
		if row.LowerBound {
			t.Errorf("%s has a goal that needs a peer: %+v", name, row)
		}
	}
	for _, name := range []string{
		"instructions in the kernel: second chance", "1 M flows: second chance / floor", "1 VIP: flow table: flow table memory",
		"many VIPs, identical backends: second chance: tables filled in", "many VIPs, different backends: flow table: one backend changes in one VIP",
		"many VIPs, identical backends: second chance: one backend changes in all VIPs",
	} {
		if rows[name].Measured <= 0 {
			t.Errorf("no row %q", name)
		}
	}
	testkit.NoLeftovers(t)
}

// A point of a growth curve is measured for each program.
func TestGrowth(t *testing.T) {
	m := &meter{}
	m.o.Growth, m.o.Only = true, "10 VIPs"
	rows := measured(t, m)
	for _, name := range []string{secondChance, flowTable, xdpbench.FloorRings} {
		i := slices.IndexFunc(m.report.Charts[1].Series, func(s design.Series) bool { return s.Name == name })
		if i < 0 || !slices.Equal(m.report.Charts[1].Series[i].Points, []design.Point{{X: 10, Y: rows["10 VIPs: "+name].Measured}}) {
			t.Errorf("%s: the chart is %+v", name, m.report.Charts[1])
		}
	}
	testkit.NoLeftovers(t)
}

func TestGrowthScenarios(t *testing.T) {
	points := map[string]int{}
	for _, s := range growth(full) {
		for _, w := range s.workloads {
			points[w.curve.over]++
		}
	}
	if want := map[string]int{"flows": 11, "VIPs": 4, "backends": 4}; !maps.Equal(points, want) {
		t.Errorf("%v points, want %v", points, want)
	}
}

// A bare load balancer plays the peer. It is faster than ours, so goals are missed.
func TestWithPeer(t *testing.T) {
	fake := func(_ context.Context, s scenario, n *xdpbench.Network) ([]*program, error) {
		rig, err := xdpbench.FloorRig(xdpbench.FloorBare, 1, 1, n.NIC)
		if err != nil {
			return nil, err
		}
		return []*program{{name: katranFlows, rig: rig, in: n.Balancer, table: true, open: []io.Closer{rig}}}, nil
	}
	m := &meter{peers: []builder{fake}}
	m.o.Only = "1 "
	rows := measured(t, m)
	for _, name := range []string{"1 flow", "1 k flows", "1 M flows"} {
		row := rows[name+": Katran / second chance"]
		if row.Goal == nil || !row.LowerBound || row.Peer != katranFlows || *row.Met {
			t.Errorf("%s: %+v", name, row)
		}
	}
	testkit.NoLeftovers(t)
}

// A program whose output is not for a backend of the VIP is not timed.
func TestWrongOutput(t *testing.T) {
	frame := make([]byte, xdpbench.FrameBytes+ipv4)
	copy(frame[12:], []byte{8, 0, 0x45, 0, 0, 86, 0, 0, 0, 0, 64, 4, 0, 0, 10, 0, 0, 1, 172, 16, 8, 3})
	copy(frame[ethernet+ipv4:], []byte{0x45, 0, 0, 66, 0, 0, 0, 0, 64, 6, 0, 0, 11, 0, 0, 1, 10, 64, 0, 1})
	sum := ^wire.Fold(wire.Sum(frame[ethernet : ethernet+ipv4]))
	frame[ethernet+10], frame[ethernet+11] = byte(sum>>8), byte(sum)
	s := scenario{vips: 1, backends: 3, pool: 3}
	if err := encapsulated(frame, s); err != nil {
		t.Error(err)
	}
	for name, c := range map[string]struct {
		at int
		to byte
	}{
		"a wrong checksum": {ethernet + 8, 63}, "total length": {ethernet + 3, 80}, "protocol 4": {ethernet + 9, 17},
		"is not the one": {ethernet + ipv4, 0x46}, "is not a VIP": {ethernet + ipv4 + 19, 9},
	} {
		wrong := append([]byte(nil), frame...)
		wrong[c.at] = c.to
		if err := encapsulated(wrong, s); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := encapsulated(frame, scenario{vips: 1, backends: 2, pool: 2}); err == nil {
		t.Error("a backend of another VIP was accepted")
	}
}

// Being ahead of a peer is enough where the peer is close to the floor itself.
func TestGoals(t *testing.T) {
	m := &meter{}
	ours, floor := []float64{150, 150, 150}, []float64{100, 100, 100}
	for name, c := range map[string]struct {
		peer   float64
		g      goal
		bypass bool
		goal   float64
		met    bool
	}{
		"slow peer":        {300, atFloor[flowTable], false, 1.8, true},
		"fast peer":        {200, atFloor[flowTable], false, 1, true},
		"behind":           {140, atFloor[flowTable], false, 1, false},
		"no flow table":    {160, goal{ratio: 2}, true, 1, true},
		"not far enough":   {160, goal{ratio: 2}, false, 2, false},
		"far enough ahead": {400, goal{ratio: 2}, false, 2, true},
	} {
		theirs := []float64{c.peer, c.peer, c.peer}
		row := m.aim(bench.TimesFaster("case", "peer", ours, theirs), c.g, c.bypass, bench.RatioTo("floor", ours, floor), theirs)
		if *row.Goal != c.goal || *row.Met != c.met {
			t.Errorf("%s: %+v", name, row)
		}
	}
}

func TestOptions(t *testing.T) {
	if err := (Options{Rounds: 15}).Validate(); err != nil {
		t.Error(err)
	}
	if err := (Options{Rounds: 1, Katran: t.TempDir()}).Validate(); err == nil || !strings.Contains(err.Error(), "--rounds") || !strings.Contains(err.Error(), "--katran") {
		t.Errorf("%v", err)
	}
}

// Runs with Katran's sources if PEER_KATRAN names them.
func TestKatran(t *testing.T) {
	from := os.Getenv("PEER_KATRAN")
	if from == "" {
		t.Skip("PEER_KATRAN is not set")
	}
	k := katran{from: from, folder: t.TempDir()}
	rows := measured(t, &meter{peers: []builder{k.programs}})
	for _, name := range []string{"1 k flows: Katran / flow table", "many VIPs, different backends: Katran without flow table / second chance", "not a VIP: Katran / second chance"} {
		if rows[name].Goal == nil {
			t.Errorf("no row %q", name)
		}
	}
	testkit.NoLeftovers(t)
}
