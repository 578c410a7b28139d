package xdpbench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/lab/testkit"
)

// Runs a short measurement of each kind. Every row must have its ratio to each floor.
func TestDataplane(t *testing.T) {
	for only, want := range map[string]struct{ rows, over int }{
		"floor: a bare stateless balancer, 1 flow": {1, 1},
		"fullnat, both ways, 1 flow":               {1, 1},
		"DSR agent, answer, 1 flow":                {1, 1},
		"one of 100 servers replaced":              {3, 0},
	} {
		r, err := MeasureDataplane(t.Context(), DataplaneOptions{Rounds: 3, Only: only, Progress: t.Output()})
		if err != nil {
			t.Fatalf("%s: %v", only, err)
		}
		if len(r.Rows) != want.rows {
			t.Errorf("%s: %d rows, want %d", only, len(r.Rows), want.rows)
		}
		for _, row := range r.Rows {
			if !strings.HasPrefix(row.Case, only) || len(row.Over) != want.over || row.Min > row.Measured || row.Measured > row.Max {
				t.Errorf("%+v", row)
			}
			if row.Goal != nil && *row.Met != (row.Measured <= *row.Goal) {
				t.Errorf("%s: goal %v, met %v", row.Case, *row.Goal, *row.Met)
			}
		}
	}
	testkit.NoLeftovers(t)
}

// Attacks with each kind of packet must not move established flows to other backends.
// Otherwise there is no row. Meaningful figures need more rounds.
func TestAttacks(t *testing.T) {
	for _, only := range []string{
		"flow table, attacked: one bucket", "flow table, attacked: SYN flood, protected",
		"fullnat, attacked: SYN flood", "fullnat, attacked: ICMP echo requests",
	} {
		r, err := MeasureDataplane(t.Context(), DataplaneOptions{Rounds: 3, Only: only, Progress: t.Output()})
		if err != nil {
			t.Fatalf("%s: %v", only, err)
		}
		for _, row := range r.Rows {
			if row.Unit != "x" || row.Measured <= 0 || row.Raw.Median <= 0 || *row.Goal != attackAtMost {
				t.Errorf("%+v", row)
			}
		}
	}
	testkit.NoLeftovers(t)
}

// A build is compared with itself. Each kind of case yields a ratio of two figures,
// except the cases that a comparison does not support.
func TestDataplaneAgainst(t *testing.T) {
	build, err := ReadBuild(t.Context(), "../../..")
	if err != nil {
		t.Fatal(err)
	}
	for only, want := range map[string]int{
		"second chance, every packet new": 2 /* with a tag, too */, "fullnat, both ways, 1 flow": 1, "flow table, in a flood": 1,
		"DSR agent, answer, 1 flow": 1, "floor:": 0, "one of 100": 0,
	} {
		r, err := MeasureDataplane(t.Context(), DataplaneOptions{Rounds: 3, Only: only, Against: build, Progress: t.Output()})
		if want == 0 {
			if err == nil {
				t.Errorf("%s: %+v", only, r.Rows)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", only, err)
		}
		for _, row := range r.Rows {
			if row.Unit != "x" || row.Measured <= 0 || row.Raw.Median <= 0 || *row.PeerMeasured <= 0 || row.Goal == nil {
				t.Errorf("%+v", row)
			}
		}
		if len(r.Rows) != want {
			t.Errorf("%s: %d rows, want %d", only, len(r.Rows), want)
		}
	}
	testkit.NoLeftovers(t)
}

// A build is an object file, a checkout or a revision. Anything else is rejected with its
// name in the error.
func TestReadBuild(t *testing.T) {
	object, err := ReadBuild(t.Context(), "../../../dataplane/xdp/bpf/balancer_bpfel.o")
	if err != nil || len(object.Balancer) == 0 || object.DSR != nil {
		t.Errorf("an object: %v", err)
	}
	if _, err := ReadBuild(t.Context(), "no-such-revision"); err == nil || !strings.Contains(err.Error(), `"no-such-revision"`) {
		t.Errorf("%v", err)
	}
}

// Every row of the table of goals is measured.
func TestEveryGoalHasACase(t *testing.T) {
	goals := map[string]float64{}
	for _, s := range subjects() {
		for i, l := range s.loads {
			if i < len(s.goals) {
				goals[s.name+", "+l.name] = s.goals[i]
			}
		}
	}
	for _, c := range dsrCases() {
		goals[c.name] = c.goal
	}
	for name, want := range map[string]float64{
		"second chance, 1 flow": 1.4, "second chance, 1 M flows": 1.4, "second chance, every packet new": 1.4,
		"second chance, 100 servers, 10 k VIPs and 1 M flows": 3.6,
		"flow table, 1 flow": 1.8, "flow table, 64 k flows": 3.9, "flow table, 1 M flows": 5.5, "flow table, every packet new": 5.5,
		"flow table, aged, 64 k flows": 3.9, "flow table, aged, 1 M flows": 5.5,
		"fullnat, both ways, 1 flow": 4.1, "fullnat, both ways, 1 k flows": 5.5,
		"not a VIP, 1 flow": 0.55, "GUE, 1 flow": 1.65, "DSR agent, known flow, 1 flow": 3.3,
	} {
		if goals[name] != want {
			t.Errorf("%s: goal %v, want %v", name, goals[name], want)
		}
	}
}

// A checkout from before the packages were grouped has the objects in other folders.
func TestReadFormerBuild(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"dataplane/xdp/balancer_bpfel.o": "balancer", "dataplane/xdp/xdpbench/server_bpfel.o": "dsr"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := ReadBuild(t.Context(), dir)
	if err != nil || string(b.Balancer) != "balancer" || string(b.DSR) != "dsr" {
		t.Errorf("%+v, %v", b, err)
	}
}
