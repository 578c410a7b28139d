package routing

import (
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/lab/sim/experiments"
)

// Experiment returns the experiment "routing".
func Experiment() experiments.Experiment {
	return experiments.Experiment{
		Name:     "routing",
		Title:    "BGP among thousands of balancers",
		Question: "How many packets are lost when one of up to 10,000 balancers stops, dies or is cut off, or a reflector does, through one to three levels of reflectors?",
		Params: []experiments.Param{
			{Name: "speakers", Description: "balancers at most", Full: 10_000, Small: 1000, Least: 100, Most: 100_000},
			{Name: "trials", Description: "trials of each row", Full: 20, Small: 3, Least: 1, Most: 10_000},
			{Name: "prefixes", Description: "prefixes that a balancer announces", Full: 10, Small: 10, Least: 1, Most: 10_000},
			{Name: "width", Description: "balancers that announce the same prefixes", Full: 16, Small: 16, Least: 1, Most: 255},
			{Name: "routers", Description: "routers", Full: 2, Small: 2, Least: 1, Most: 64},
			{Name: "packets", Description: "packets a second to each balancer", Full: 100_000, Small: 100_000, Least: 1, Most: 1e9},
			{Name: "churn", Description: "balancers a second that stop and start again, where intervals and reflecting to balancers are looked at", Full: 1, Small: 1, Least: 0.001, Most: 1e4},
			{Name: "path", Description: "µs of work to take in a path", Full: 60, Small: 60, Least: 0, Most: 1e6},
			{Name: "send", Description: "µs of work to advertise a path to a peer", Full: 20, Small: 20, Least: 0, Most: 1e6},
			{Name: "write", Description: "µs until a router's kernel has a prefix", Full: 50, Small: 50, Least: 0, Most: 1e6},
			{Name: "wake", Description: "µs until a node looks at a message", Full: 500, Small: 500, Least: 0, Most: 1e6},
			{Name: "death", Description: "µs until a killed process' connections have ended", Full: 3000, Small: 3000, Least: 0, Most: 1e7},
		},
		Run:    run,
		Claims: claims(),
		Remarks: []string{
			"A node does one thing after the other: it takes in updates in the order in which they came.",
			"Until its silence is noticed, packets are sent to a balancer that is cut off; a killed one is a node, not an agent alone, whose programs would keep running.",
		},
	}
}

// Names of the tables, and of their columns.
const (
	byEvent       = "events"
	byTimers      = "timers"
	byInterval    = "intervals"
	byAdvertising = "advertising"
	standing      = "standing"

	median      = "median, ms"
	worst       = "worst, ms"
	lostMedian  = "packets lost, median"
	lostWorst   = "packets lost, worst"
	busiestNode = "updates at the busiest"
)

// study is a row to compute, from several trials.
type study struct {
	table string
	keys  []string
	what  string
	c     Config
}

func base(r *experiments.Run) Config {
	us := func(name string) time.Duration { return time.Duration(r.Param(name) * float64(time.Microsecond)) }
	return Config{
		Speakers: r.Int("speakers"), Depth: 2, Reflectors: 2, Routers: r.Int("routers"), Prefixes: r.Int("prefixes"), Width: r.Int("width"),
		Hold: 9 * time.Second, Interval: 300 * time.Millisecond, Multiplier: 3,
		Costs: Costs{Link: 50 * time.Microsecond, Wake: us("wake"), Death: us("death"), Path: us("path"), Send: us("send"), Write: us("write")},
	}
}

// speakersUpTo returns 100, 1000, … and most.
func speakersUpTo(most int) (all []int) {
	for n := 100; n < most; n *= 10 {
		all = append(all, n)
	}
	return append(all, most)
}

const deepest = 3

// intervals contains the values of MRAI: none, and what RFC 4271 suggests within and
// between ASes.
var intervals = []time.Duration{0, 5 * time.Second, 30 * time.Second}

// silences contains the ways to detect silence: BFD with an interval and multiplier 3,
// and hold times without BFD.
var silences = []struct {
	name           string
	interval, hold time.Duration
}{
	{"BFD 3 x 100 ms", 100 * time.Millisecond, 0}, {"BFD 3 x 300 ms", 300 * time.Millisecond, 0}, {"BFD 3 x 1 s", time.Second, 0},
	{"hold time 3 s", 0, 3 * time.Second}, {"hold time 9 s", 0, 9 * time.Second}, {"hold time 90 s", 0, 90 * time.Second},
}

func studies(r *experiments.Run) (all []study) {
	add := func(table, what string, change func(*Config), keys ...string) {
		c := base(r)
		change(&c)
		all = append(all, study{table, keys, what, c})
	}
	for _, what := range Happenings {
		for _, n := range speakersUpTo(r.Int("speakers")) {
			for depth := 1; depth <= deepest; depth++ {
				add(byEvent, what, func(c *Config) { c.Speakers, c.Depth = n, depth }, what, fmt.Sprint(n), fmt.Sprint(depth))
			}
		}
	}
	for _, s := range silences {
		add(byTimers, Cut, func(c *Config) { c.Interval, c.Hold = s.interval, s.hold }, s.name)
	}
	for _, mrai := range intervals {
		for depth := 1; depth <= deepest; depth++ {
			add(byInterval, Stop, func(c *Config) { c.MRAI, c.Depth, c.Churn = mrai, depth, r.Param("churn") }, seconds(mrai), fmt.Sprint(depth))
		}
	}
	for _, n := range speakersUpTo(r.Int("speakers")) {
		for i, to := range []string{"routers", "all"} {
			add(byAdvertising, Stop, func(c *Config) { c.Speakers, c.Depth, c.ToSpeakers, c.Churn = n, 1, i == 1, r.Param("churn") }, to, fmt.Sprint(n))
		}
	}
	return all
}

func seconds(d time.Duration) string { return fmt.Sprint(d.Seconds()) }

// try returns the numbers of a row.
func (s study) try(seed uint32, trials int, packets float64) ([]float64, error) {
	var took, lost []float64
	taken := int64(0)
	for i := range trials {
		s.c.Seed = seed*1_000_003 + uint32(i)
		o, err := s.c.Try(s.what)
		if err != nil {
			return nil, err
		}
		took, lost, taken = append(took, o.Took.Seconds()*1000), append(lost, o.Blind.Seconds()*packets), max(taken, o.Taken)
	}
	slices.Sort(took)
	slices.Sort(lost)
	return []float64{took[len(took)/2], took[len(took)-1], lost[len(lost)/2], lost[len(lost)-1], float64(taken)}, nil
}

func run(r *experiments.Run) (*experiments.Result, error) {
	all := studies(r)
	rows := make([][]float64, len(all))
	err := r.Each(len(all), func(i int) (err error) {
		rows[i], err = all[i].try(r.Seed, r.Int("trials"), r.Param("packets"))
		return err
	})
	if err != nil {
		return nil, err
	}
	result := &experiments.Result{Tables: tables()}
	for i, s := range all {
		t := &result.Tables[slices.IndexFunc(result.Tables, func(t experiments.Table) bool { return t.Name == s.table })]
		t.Add(s.keys, rows[i]...)
	}
	result.Tables = append(result.Tables, standingTable(r))
	result.Pictures = pictures(result, speakersUpTo(r.Int("speakers")))
	return result, nil
}

func tables() []experiments.Table {
	columns := []string{median, worst, lostMedian, lostWorst, busiestNode}
	return []experiments.Table{
		{Name: byEvent, Title: "Until all routers have written what follows", Keys: []string{"what happens", "balancers", "depth"}, Columns: columns},
		{Name: byTimers, Title: "A balancer is cut off, depth 2, by how silence is noticed", Keys: []string{"noticed by"}, Columns: columns},
		{Name: byInterval, Title: "A balancer stops in order while others do, by the least seconds between two updates (MRAI)", Keys: []string{"MRAI, s", "depth"}, Columns: columns},
		{Name: byAdvertising, Title: "A balancer stops in order while others do, depth 1, by peers that reflectors advertise to", Keys: []string{"advertised to", "balancers"}, Columns: columns},
	}
}

// standingTable calculates the work while nothing happens.
func standingTable(r *experiments.Run) experiments.Table {
	t := experiments.Table{Name: standing, Title: "One reflector while nothing happens", Keys: []string{"balancers", "depth"},
		Columns: []string{"sessions below, lowest level", "sessions below, highest level", "BFD packets a second, in and out", "keepalives a second, in and out", "paths, highest level"}}
	for _, speakers := range speakersUpTo(r.Int("speakers")) {
		for depth := 1; depth <= deepest; depth++ {
			c := base(r)
			c.Speakers, c.Depth = speakers, depth
			n := newNetwork(&c)
			low, high, copies := min(n.fan, speakers), min(n.fan, speakers), 1
			if depth > 1 {
				high, copies = len(n.level[depth-2]), c.Reflectors
			}
			sessions := float64(low + len(n.nodes[0].peers))
			t.Add([]string{fmt.Sprint(speakers), fmt.Sprint(depth)}, float64(low), float64(high), 2*sessions/c.Interval.Seconds(),
				2*sessions/(c.Hold/3).Seconds(), float64(speakers*c.Prefixes*copies))
		}
	}
	return t
}

func pictures(r *experiments.Result, speakers []int) (all []experiments.Picture) {
	for _, p := range []struct {
		name, title, y, column string
		what                   []string
	}{
		{"lost", "Packets lost, worst of all trials, depth 2", "packets", lostWorst, []string{Kill, Cut, StopAfterKill, StopAfterCut}},
		{"took", "Until all routers have written it, or digested it, median, depth 2", "ms", median, []string{Stop, Kill, Cut, ReflectorKill, Start}},
	} {
		picture := experiments.Picture{Name: p.name, Title: p.title, X: "balancers", Y: p.y, LogX: true, LogY: true}
		for _, what := range p.what {
			curve := experiments.Series{Name: what}
			for _, n := range speakers {
				curve.Points = append(curve.Points, experiments.XY{X: float64(n), Y: r.Cell(byEvent, p.column, what, fmt.Sprint(n), "2")})
			}
			picture.Series = append(picture.Series, curve)
		}
		all = append(all, picture)
	}
	return all
}
