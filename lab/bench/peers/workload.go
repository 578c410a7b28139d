package peers

import "github.com/fairlead/fairlead/lab/bench/xdpbench"

// The verdicts of XDP programs.
const (
	pass = 2
	tx   = 3
)

// The programs that are compared.
const (
	secondChance = "second chance"
	flowTable    = "flow table"
	katranFlows  = "Katran"
	katranBypass = "Katran without flow table"
)

// scenario is a set of VIPs with their backends.
type scenario struct {
	name      string
	vips      int
	backends  int  // per VIP
	pool      int  // backends in total
	size      size // for the flow tables
	workloads []workload
}

// backendsOf returns the numbers of a VIP's backends. With a pool, each VIP has its own
// set, which overlaps with those of others.
func (s scenario) backendsOf(vip int) []int {
	all := make([]int, s.backends)
	for i := range all {
		all[i] = i
		if s.pool > s.backends {
			all[i] = (vip + i*(s.pool/s.backends+1)) % s.pool
		}
	}
	return all
}

// workload is what is sent in a scenario.
type workload struct {
	name    string
	traffic xdpbench.Traffic
	want    int
	aged    bool   // flow tables have been filled several times over
	floor   string // of second chance
	goals   map[string]goal
	curve   curve // of growth curves only
}

// goal is the least ratio of Katran's time to that of one of our programs.
type goal struct {
	ratio float64
	// floor is the largest ratio to the program's floor. With either, one of the two is
	// enough.
	floor  float64
	either bool
	// Where Katran takes less than slowPeer times the floor, being ahead of it is enough.
	slowPeer float64
}

func goals(chance, table float64) map[string]goal {
	return map[string]goal{secondChance: {ratio: chance}, flowTable: {ratio: table}}
}

// atFloor are the goals at a number of flows where no program can be much faster.
var atFloor = map[string]goal{
	secondChance: {ratio: 5, floor: 1.2, either: true},
	flowTable:    {ratio: 1.8, floor: 1.4, slowPeer: 2.5},
}

func scenarios(z size) []scenario {
	flows := func(n uint64) xdpbench.Traffic { return xdpbench.Traffic{Flows: min(n, z.flows), VIPs: 1} }
	single := []workload{
		{name: "1 flow", traffic: flows(1), goals: goals(1.6, 1.3)},
		{name: "1 k flows", traffic: flows(1 << 10), goals: goals(2, 1.3)},
		{name: "64 k flows", traffic: flows(1 << 16), goals: goals(3, 1.8)},
		{name: "1 M flows", traffic: flows(1 << 20), goals: atFloor},
		{name: "not a VIP", traffic: xdpbench.Traffic{Flows: 1, VIPs: 1, Elsewhere: true}, want: pass, floor: xdpbench.FloorParse, goals: map[string]goal{secondChance: {ratio: 2.5}}},
		{name: "every packet new", traffic: flows(0), aged: true, goals: goals(12, 4)},
		{name: "1 M flows, aged", traffic: flows(1 << 20), aged: true, goals: atFloor},
	}
	for i := range single {
		w := &single[i]
		if w.want == 0 {
			w.want, w.floor = tx, xdpbench.FloorBare
		}
	}
	all := []scenario{{name: "1 VIP", vips: 1, backends: z.backends, pool: z.backends, size: z, workloads: single}}
	for _, sets := range []struct {
		name string
		pool int
	}{{"identical", z.backends}, {"different", z.vips}} {
		w := workload{
			name: "many VIPs, " + sets.name + " backends", want: tx, floor: xdpbench.FloorRings, goals: goals(2, 1.2),
			traffic: xdpbench.Traffic{Flows: z.flows, VIPs: z.vips},
		}
		all = append(all, scenario{name: w.name, vips: z.vips, backends: z.backends, pool: sets.pool, size: z, workloads: []workload{w}})
	}
	return all
}
