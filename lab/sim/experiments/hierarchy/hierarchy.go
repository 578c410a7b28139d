// Package hierarchy simulates the benefit of a tree of load balancers: the structure of
// Fig. 26 of the LVS paper with any depth, packet by packet for small trees, and by flows
// up to 100,000 servers.
package hierarchy

import (
	"fmt"
	"math"

	"github.com/fairlead/fairlead/lab/sim/experiments"
	"github.com/fairlead/fairlead/lab/sim/verdict"
)

// Experiment returns the experiment.
func Experiment() experiments.Experiment {
	return experiments.Experiment{
		Name:     "hierarchy",
		Title:    "Hierarchical virtual servers of any depth",
		Question: "What do throughput, delay and loss of a tree of balancers depend on, and which fan-out and depth are best?",
		Params: []experiments.Param{
			{Name: "servers", Description: "servers of the large trees", Full: 100000, Small: 100000, Least: 4, Most: 1e6},
			{Name: "seconds", Description: "simulated seconds of a LAN", Full: 1, Small: 0.1, Least: 0.05, Most: 100},
			{Name: "stations", Description: "servers on the largest LAN that is simulated", Full: 128, Small: 64, Least: 64, Most: 1024},
			{Name: "forward", Description: "seconds that a switched balancer takes for a packet", Full: 0.2e-6, Small: 0.2e-6, Least: 1e-8, Most: 1e-3},
			{Name: "each", Description: "seconds more for each server below it, where the scheduler compares all (lc)", Full: 2e-9, Small: 2e-9, Least: 0, Most: 1e-3},
			{Name: "queue", Description: "packets that a switched balancer has room for", Full: 100, Small: 100, Least: 2, Most: 10000},
		},
		Run:    run,
		Claims: claims(),
		Remarks: []string{
			"Clients ask at random (Poisson), packets have 500 bytes, servers answer in no time, and each request is a connection of its own, given to the next in turn.",
			"By flows, what comes to a level is taken for random again, and a LAN's behaviour is that of one LAN by itself, simulated packet by packet.",
		},
	}
}

// Rates offered to a tree of LANs, in requests per second.
const (
	low  = 40e3
	high = 90e3
)

func run(r *experiments.Run) (*experiments.Result, error) {
	sizes := []float64{2, 3, 4, 8, 16, 32, 64}
	for s := 128.0; s <= r.Param("stations"); s *= 2 {
		sizes = append(sizes, s)
	}
	var rates []float64
	for k := 10.0; k <= 120; k += 10 {
		rates = append(rates, 1000*k)
	}
	rates = append([]float64{500, 2000, 5000}, rates...)
	cases := comparisons(r)
	exact := make([]*outcome, len(cases))
	err := r.Each(len(cases), func(i int) (err error) {
		exact[i], err = cases[i].packets(r.Context, cases[i].rate, cases[i].seconds, r.Seed)
		return err
	})
	if err != nil {
		return nil, err
	}
	l, err := measureLANs(r, sizes, rates)
	if err != nil {
		return nil, err
	}
	compared := experiments.Table{Name: comparedTable, Title: "Packet by packet, and by flows", Keys: []string{"medium", "servers", "tree", "offered"},
		Columns: []string{"replies/s", "by flows", "delay, ms", "delay by flows", "lost/s", "lost by flows"}}
	levels := experiments.Table{Name: levelsTable, Title: "Packets lost a second, by level, packet by packet", Keys: compared.Keys,
		Columns: []string{"root", "level 2", "level 3", "further levels", "servers"}}
	for i, c := range cases {
		o, f := exact[i], c.flows(c.rate, l)
		compared.Add(c.keys(), o.replies, f.replies, 1000*o.delay, 1000*f.delay, sum(o.lost), sum(f.lost))
		levels.Add(c.keys(), byLevel(o.lost)...)
	}
	shared := sharedTrees(r.Int("servers"), l)
	switched := switchedTrees(r)
	return &experiments.Result{
		Tables:   []experiments.Table{compared, levels, shared, switched},
		Pictures: []experiments.Picture{lanPicture(l), deepPicture(r.Int("servers"), l), costPicture(&switched)},
	}, nil
}

const comparedTable, levelsTable, sharedTable, switchedTable = "compared", "levels", "shared", "switched"

// comparison is a tree that is small enough to simulate packet by packet.
type comparison struct {
	tree
	rate, seconds float64
	offered       string
}

func (c comparison) keys() []string {
	medium := "shared LANs"
	if c.medium == switched {
		medium = "switched"
	}
	return []string{medium, fmt.Sprint(c.servers()), c.String(), c.offered}
}

func comparisons(r *experiments.Run) (all []comparison) {
	for _, t := range [][2]int{{8, 1}, {2, 3}, {16, 1}, {4, 2}, {2, 4}, {64, 1}, {8, 2}, {4, 3}, {2, 6}} {
		for _, rate := range []float64{low, high} {
			all = append(all, comparison{tree{medium: shared, fanOut: t[0], depth: t[1]}, rate, r.Param("seconds"), fmt.Sprintf("%g/s", rate)})
		}
	}
	takes := r.Param("forward")
	for _, t := range [][2]int{{256, 1}, {16, 2}, {4, 4}, {2, 8}} {
		for _, load := range []float64{0.5, 0.9, 1.2} {
			c := comparison{tree{switched, t[0], t[1], takes, r.Int("queue")}, load / takes, 0, fmt.Sprintf("%g of the root's", load)}
			c.seconds = max(400e3*r.Param("seconds"), 200e3) * takes
			all = append(all, c)
		}
	}
	return all
}

// byLevel sorts losses into the table's columns.
func byLevel(lost []float64) []float64 {
	row := []float64{lost[0], math.NaN(), math.NaN(), math.NaN(), lost[len(lost)-1]}
	for i, l := range lost[1 : len(lost)-1] {
		at := min(i+1, 3)
		if math.IsNaN(row[at]) {
			row[at] = 0
		}
		row[at] += l
	}
	return row
}

func sum(all []float64) (s float64) {
	for _, x := range all {
		s += x
	}
	return s
}

const deepest = 17 // with 100,000 servers, two below each load balancer

// sharedTrees computes trees of LANs with many servers.
func sharedTrees(servers int, l *lans) experiments.Table {
	t := experiments.Table{Name: sharedTable, Title: fmt.Sprintf("Trees of shared LANs with %d servers, by flows", servers), Keys: []string{"tree"},
		Columns: []string{"balancers", "replies/s of 40,000", "delay, ms", "replies/s of 90,000", "lost/s at the root", "at level 2", "below"}}
	for _, shape := range shapes(servers, deepest) {
		a, b := shape.flows(low, l), shape.flows(high, l)
		below := 0.0
		for _, lost := range b.lost[2:] {
			below += lost
		}
		t.Add([]string{shape.String()}, shape.balancers(), a.replies, 1000*a.delay, b.replies, b.lost[0], b.lost[1], below)
	}
	return t
}

// switchedTrees computes trees of switched load balancers with many servers, for a
// scheduler that looks at one server and for one that compares all.
func switchedTrees(r *experiments.Run) experiments.Table {
	servers := r.Int("servers")
	t := experiments.Table{Name: switchedTable, Title: fmt.Sprintf("Trees of switched balancers with %d servers, by flows", servers), Keys: []string{"tree"},
		Columns: []string{"balancers", "M requests/s, one looked at", "delay at 0.9, µs", "M requests/s, all compared", "delay at 0.9 of that, µs"}}
	for _, shape := range shapes(servers, deepest) {
		row := []float64{shape.balancers()}
		for _, takes := range []float64{r.Param("forward"), r.Param("forward") + r.Param("each")*float64(shape.fanOut)} {
			one := tree{switched, shape.fanOut, shape.depth, takes, r.Int("queue")}
			o := one.flows(0.9/takes, nil)
			row = append(row, 1e-6/takes, 1e6*o.delay)
		}
		t.Add([]string{shape.String()}, row...)
	}
	return t
}

func lanPicture(l *lans) experiments.Picture {
	p := experiments.Picture{Name: "lan", Title: "One LAN, packet by packet", X: "requests a second, offered", Y: "replies a second"}
	for i, size := range l.sizes {
		s := experiments.Series{Name: fmt.Sprintf("%g servers", size)}
		for k, rate := range l.rates {
			s.Points = append(s.Points, experiments.XY{X: rate, Y: l.all[i][k].replies})
		}
		p.Series = append(p.Series, s)
	}
	return p
}

func deepPicture(servers int, l *lans) experiments.Picture {
	p := experiments.Picture{Name: "deep", Title: fmt.Sprintf("Trees of shared LANs, %d servers, by flows", servers), X: "requests a second, offered", Y: "replies a second"}
	for _, shape := range shapes(servers, deepest) {
		s := experiments.Series{Name: shape.String()}
		for _, rate := range l.rates {
			s.Points = append(s.Points, experiments.XY{X: rate, Y: shape.flows(rate, l).replies})
		}
		p.Series = append(p.Series, s)
	}
	return p
}

func costPicture(t *experiments.Table) experiments.Picture {
	p := experiments.Picture{Name: "cost", Title: "Trees of switched balancers", X: "depth, in the order of the table", Y: "million requests a second", LogY: true}
	for _, column := range []int{1, 3} {
		s := experiments.Series{Name: t.Columns[column]}
		for i, row := range t.Rows {
			s.Points = append(s.Points, experiments.XY{X: float64(i + 1), Y: row.Values[column]})
		}
		p.Series = append(p.Series, s)
	}
	return p
}

func claims() []experiments.Claim {
	return []experiments.Claim{
		verdict.AtLeast("shared LANs, 64 servers, 90,000 offered: replies of 8 times 8 by those of one LAN", 1.1, func(r *experiments.Result) float64 {
			return replies(r, "64", tree{fanOut: 8, depth: 2}) / replies(r, "64", tree{fanOut: 64, depth: 1})
		}),
		verdict.AtMost("shared LANs: replies by flows are off from those packet by packet by at most", 0.2, func(r *experiments.Result) float64 { return off(r, "shared LANs", 0) }),
		verdict.AtMost("switched: replies by flows are off by at most", 0.03, func(r *experiments.Result) float64 { return off(r, "switched", 0) }),
		verdict.AtMost("switched: delays by flows are off by at most", 0.15, func(r *experiments.Result) float64 { return off(r, "switched", 2) }),
		verdict.AtMost("switched: replies of the best tree of 256 servers by those of one balancer", 1.01, func(r *experiments.Result) float64 {
			flat, best := math.Inf(1), 0.0
			for _, row := range rows(r, comparedTable) {
				if row.Keys[0] != "switched" || row.Keys[3] != "1.2 of the root's" {
					continue
				}
				if row.Keys[2] == (tree{fanOut: 256, depth: 1}).String() {
					flat = row.Values[0]
				}
				best = max(best, row.Values[0])
			}
			return best / flat
		}),
		verdict.AtLeast("shared LANs, all servers: the most replies at 90,000 by those of one LAN", 1.3, func(r *experiments.Result) float64 {
			all := column(r, sharedTable, 3)
			return best(all) / all[0]
		}),
		verdict.AtLeast("shared LANs, all servers: the delay of the deepest tree by that of one LAN", 5, func(r *experiments.Result) float64 {
			all := column(r, sharedTable, 2)
			return all[len(all)-1] / all[0]
		}),
		verdict.AtLeast("all compared: requests a second of 3 levels by those of one balancer", 100, func(r *experiments.Result) float64 {
			all := column(r, switchedTable, 3)
			return all[2] / all[0]
		}),
		verdict.AtMost("all compared: requests a second of the best tree by those of 3 levels", 1.6, func(r *experiments.Result) float64 {
			all := column(r, switchedTable, 3)
			return best(all) / all[2]
		}),
	}
}

func rows(r *experiments.Result, table string) []experiments.Row {
	for _, t := range r.Tables {
		if t.Name == table {
			return t.Rows
		}
	}
	return nil
}

func column(r *experiments.Result, table string, at int) (all []float64) {
	for _, row := range rows(r, table) {
		all = append(all, row.Values[at])
	}
	return all
}

func best(all []float64) float64 {
	m := math.Inf(-1)
	for _, x := range all {
		m = max(m, x)
	}
	return m
}

func replies(r *experiments.Result, servers string, t tree) float64 {
	return r.Cell(comparedTable, "replies/s", "shared LANs", servers, t.String(), fmt.Sprintf("%g/s", high))
}

// off returns the maximum relative difference between flows and packets, for one column.
func off(r *experiments.Result, medium string, at int) float64 {
	worst := 0.0
	for _, row := range rows(r, comparedTable) {
		if row.Keys[0] == medium {
			worst = max(worst, math.Abs(row.Values[at+1]/row.Values[at]-1))
		}
	}
	return worst
}
