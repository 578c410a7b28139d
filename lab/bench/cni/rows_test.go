package cni

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/lab/bench"
	slicesbench "github.com/fairlead/fairlead/lab/bench/slices"
	"github.com/fairlead/fairlead/lab/cputime"
)

// of returns runs with these throughputs, each with the CPU time cpu per Gbit.
func of(cpu float64, mbits ...float64) (all runs) {
	for _, m := range mbits {
		all = append(all, run{mbits: m, samples: []float64{m}, used: cputime.Usage{Machine: cpu}})
	}
	return all
}

func row(t *testing.T, r *bench.Report, name string) bench.Row {
	t.Helper()
	for _, row := range r.Rows {
		if row.Case == name {
			return row
		}
	}
	t.Fatalf("no row %q in %+v", name, r.Rows)
	return bench.Row{}
}

func TestRowsJudgePairs(t *testing.T) {
	r := bench.New("cni")
	throughputRows(r, setting{"1G", true}, measured{
		{toServer, Host}:       of(100, 1000, 500, 1000),
		{toServer, Macvlan}:    of(90, 980, 490, 980),
		{toServer, HostDevice}: of(130, 960, 480, 960),
		{toServer, HostGW}:     of(120, 900, 450, 900),
	})
	for name, want := range map[string]struct {
		measured float64
		met      bool
	}{
		"1G, pod to server, macvlan: less than the host":                             {2, true},
		"1G, pod to server, host-device: less than the host":                         {4, false},
		"1G, pod to server, macvlan: CPU, over the least of bridge and overlays":     {0.75, true},
		"1G, pod to server, host-device: CPU, over the least of bridge and overlays": {1.0833, false},
	} {
		got := row(t, r, name)
		if math.Abs(got.Measured-want.measured) > 1e-3 || got.Met == nil || *got.Met != want.met {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := row(t, r, "1G, pod to server, macvlan: throughput"); got.Peer != "paper" || *got.PeerMeasured != 938 {
		t.Errorf("%+v", got)
	}
	// Without a rate limit, the CPU is the bottleneck, and there are no goals.
	throughputRows(r, setting{noRate, true}, measured{{toServer, Host}: of(1, 1), {toServer, Macvlan}: of(1, 1), {toServer, HostGW}: of(1, 1)})
	if slices.ContainsFunc(r.Rows, func(row bench.Row) bool {
		return strings.HasPrefix(row.Case, "no limit") && strings.HasSuffix(row.Case, "less than the host")
	}) {
		t.Error("a goal without a rate")
	}
}

func TestSlicesRows(t *testing.T) {
	got := slicesbench.Result{Uplink: 500_000_000, Guarantee: 400_000_000}
	for i := range 12 {
		s := slicesbench.Second{At: float64(i + 1), Phase: slicesbench.Alone, Guaranteed: 475e6}
		switch i / 4 {
		case 1:
			s.Phase, s.Guaranteed, s.Attacker = slicesbench.Attacked, 340e6, 100e6
		case 2:
			s.Phase, s.Guaranteed, s.Attacker = slicesbench.AttackerAlone, 0, 470e6
		}
		got.Seconds = append(got.Seconds, s)
	}
	r := bench.New("cni")
	slicesRows(r, got)
	for name, met := range map[string]bool{"alone": true, "attacked": false, "its attacker, alone": true} {
		got := row(t, r, "slices, 400M guaranteed of 500M, "+name+": below its share")
		if got.Met == nil || *got.Met != met {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if events := r.Charts[0].Events; events[len(events)-1].Name != string(slicesbench.AttackerAlone) {
		t.Errorf("the chart names the phases %v", events)
	}
}

func TestSpread(t *testing.T) {
	if got := (run{samples: []float64{90, 110, 90, 110}}).spread(); math.Abs(got-10) > 1e-9 {
		t.Errorf("%g %%, want 10", got)
	}
}

func TestTurnBeginsOneFurther(t *testing.T) {
	all := []int{1, 2, 3}
	for round, want := range [][]int{{1, 2, 3}, {2, 3, 1}, {3, 1, 2}, {1, 2, 3}} {
		if got := turn(all, round); !slices.Equal(got, want) {
			t.Errorf("round %d: %v", round, got)
		}
	}
}
