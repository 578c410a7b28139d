// Package rollout simulates what breaks, and how uneven the load becomes, while servers
// are replaced in batches, or are added and removed in a storm.
package rollout

import (
	"fmt"

	"github.com/fairlead/fairlead/lab/sim/experiments"
	"github.com/fairlead/fairlead/lab/sim/experiments/follow"
	"github.com/fairlead/fairlead/lab/sim/verdict"
)

// Experiment returns the experiment.
func Experiment() experiments.Experiment {
	return experiments.Experiment{
		Name:     "rollout",
		Title:    "Autoscaling storms and rolling updates",
		Question: "How many connections break, and how uneven is the load, for which batches, drain times and storms?",
		Params: []experiments.Param{
			{Name: "servers", Description: "servers of the service", Full: 50, Small: 20, Least: 10, Most: 1000},
			{Name: "balancers", Description: "balancers, behind one resilient group", Full: 8, Small: 4, Least: 3, Most: 500},
			{Name: "slots", Description: "slots of the ring, a prime", Full: 8191, Small: 2039, Least: 251, Most: 131071},
			{Name: "rate", Description: "connections a second", Full: 1000, Small: 200, Least: 1, Most: 1e6},
			{Name: "life", Description: "mean life of a connection, in seconds", Full: 30, Small: 30, Least: 0.01, Most: 1e5},
			{Name: "spread", Description: "standard deviation of the logarithm of lives", Full: 1.5, Small: 1.5, Least: 0, Most: 4},
			{Name: "pace", Description: "seconds from one batch to the next", Full: 15, Small: 15, Least: 1, Most: 3600},
			{Name: "drain", Description: "seconds from the drain to the end of a server, where it is not varied", Full: 120, Small: 120, Least: 0, Most: 1e5},
		},
		Run:    run,
		Claims: claims(),
		Remarks: []string{
			"Every connection is followed. Those that are still on a server when it ends are lost, whatever balancers do, and are counted apart.",
			"All balancers receive a change at the same time, and every open connection sends a packet after each; a broken connection is not reopened.",
		},
	}
}

const batchTable, drainTable, agesTable, stormTable = "batches", "drains", "ages", "storms"

// piece is one series of moves, with the table and row that it belongs to.
type piece struct {
	scene
	table string
	keys  []string
	moves []move
	end   float64
	got   *played
}

// settleTime is how long the load is observed after the last move, in mean lifetimes.
const settleTime = 20

func run(r *experiments.Run) (*experiments.Result, error) {
	all := pieces(r)
	err := r.Each(len(all), func(i int) (err error) {
		p := all[i]
		if p.got, err = p.play(r.Context, p.moves, p.end); err != nil {
			err = fmt.Errorf("%s %q: %w", p.table, p.keys, err)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var ways []string
	for way := range follow.Ways {
		ways = append(ways, way.String())
	}
	columns := append(ways, "lost with their server", "opened", "fullest, by its share", "emptiest", "even after, s")
	result := &experiments.Result{Tables: []experiments.Table{
		{Name: batchTable, Title: "A rolling update, by batches", Keys: []string{"batch", "order"}, Columns: columns},
		{Name: drainTable, Title: "A rolling update, by drain times, one in ten at a time", Keys: []string{"drain, in mean lives", "balancers"}, Columns: columns},
		{Name: agesTable, Title: "Balancers replaced during a rolling update, with ages and without", Keys: []string{"batch", "ages"}, Columns: columns},
		{Name: stormTable, Title: "Servers that come and go again", Keys: []string{"share", "times"}, Columns: columns},
	}}
	picture := experiments.Picture{Name: "load", Title: "The fullest server during a rolling update, new ones first", X: "seconds", Y: "connections, by its share"}
	for _, p := range all {
		for i := range result.Tables {
			if t := &result.Tables[i]; t.Name == p.table {
				t.Add(p.keys, p.got.row()...)
			}
		}
		if p.table == batchTable && p.keys[1] == newFirst {
			picture.Series = append(picture.Series, experiments.Series{Name: p.keys[0] + " at a time", Points: p.got.loads})
		}
	}
	result.Pictures = []experiments.Picture{picture}
	return result, nil
}

func (p *played) row() (row []float64) {
	for _, n := range p.broken {
		row = append(row, float64(n))
	}
	return append(row, float64(p.lost), float64(p.followed), p.fullest, p.emptiest, p.even)
}

// Orders within a batch.
const newFirst, oldFirst = "new first", "old first"

// Whether load balancers know the servers' timestamps.
const known, unknown = "known", "not known"

// batches contains the shares of servers that are replaced at a time.
var batches = []float64{0.02, 0.1, 0.2, 0.5, 1}

// drains contains the drain times, in mean lifetimes.
var drains = []float64{0, 0.5, 1, 2, 4, 10, 20}

// storms contains the shares of servers that are added and removed, and how often.
var storms = []struct {
	share float64
	times int
}{{0.1, 1}, {0.1, 4}, {0.1, 10}, {0.5, 4}, {1, 1}, {1, 4}, {1, 10}}

func pieces(r *experiments.Run) (all []*piece) {
	s := newScene(r)
	pace, drain := r.Param("pace"), r.Param("drain")
	add := func(s scene, table string, moves []move, last, balancersEvery float64, keys ...string) {
		all = append(all, &piece{scene: s, table: table, keys: keys, moves: inOrder(moves, balancersEvery, last), end: last + settleTime*s.mean})
	}
	size := func(share float64) int { return max(1, int(share*float64(s.servers)+0.5)) }
	for _, order := range []string{newFirst, oldFirst} {
		for _, share := range batches {
			if order == oldFirst && share == 1 {
				continue // no server would be left
			}
			moves, last := rolling(s.servers, size(share), drain, pace, order == newFirst)
			add(s, batchTable, moves, last, 0, percent(share), order)
		}
	}
	for i, every := range []float64{0, 2 * pace} {
		for _, lives := range drains {
			moves, last := rolling(s.servers, size(0.1), lives*s.mean, pace, true)
			add(s, drainTable, moves, last, every, fmt.Sprint(lives), []string{"stay", "are replaced"}[i])
		}
	}
	for _, share := range batches {
		for _, ages := range []string{known, unknown} {
			s.forgetful = ages == unknown
			moves, last := rolling(s.servers, size(share), drain, pace, true)
			add(s, agesTable, moves, max(last, 8*pace), 2*pace, percent(share), ages)
		}
	}
	s.forgetful = false
	for _, storms := range storms {
		moves, last := storm(s.servers, size(storms.share), storms.times, drain, pace)
		add(s, stormTable, moves, last, 2*pace, percent(storms.share), fmt.Sprint(storms.times))
	}
	return all
}

func percent(share float64) string { return fmt.Sprintf("%g %%", 100*share) }

func claims() []experiments.Claim {
	second, ring := follow.SecondChance.String(), follow.Maglev.String()
	return []experiments.Claim{
		verdict.AtMost("second chance: broken by any rolling update, of 10,000 that a ring alone breaks", 10, func(r *experiments.Result) float64 {
			return 10000 * total(r, batchTable, second) / total(r, batchTable, ring)
		}),
		verdict.AtMost("second chance: broken while balancers are replaced, ages known, of 10,000 of a ring alone", 50, func(r *experiments.Result) float64 {
			return 10000 * total(r, agesTable, second, 1, known) / total(r, agesTable, ring, 1, known)
		}),
		verdict.AtLeast("second chance, balancers replaced: broken without ages by those with them, and 1", 10, func(r *experiments.Result) float64 {
			return total(r, agesTable, second, 1, unknown) / (1 + total(r, agesTable, second, 1, known))
		}),
		verdict.AtLeast("flow table: broken where balancers are replaced as well", 1, func(r *experiments.Result) float64 {
			return total(r, drainTable, follow.FlowTable.String(), 1, "are replaced")
		}),
		verdict.AtMost("lost when servers end after 10 mean lives, by those where they end at once", 0.15, func(r *experiments.Result) float64 {
			lost := func(lives string) float64 { return r.Cell(drainTable, "lost with their server", lives, "stay") }
			return lost("10") / lost("0")
		}),
		verdict.AtMost("one in ten at a time, new first: the fullest server by its share", 1.35, func(r *experiments.Result) float64 {
			return r.Cell(batchTable, "fullest, by its share", percent(0.1), newFirst)
		}),
		verdict.AtLeast("half at a time, old first: the fullest server by its share", 1.2, func(r *experiments.Result) float64 {
			return r.Cell(batchTable, "fullest, by its share", percent(0.5), oldFirst)
		}),
	}
}

// total sums up a column of a table, over all rows, or over those with the given key at
// the given position.
func total(r *experiments.Result, table, column string, where ...any) (sum float64) {
	for _, t := range r.Tables {
		if t.Name != table {
			continue
		}
		for _, row := range t.Rows {
			if len(where) == 0 || row.Keys[where[0].(int)] == where[1] {
				sum += r.Cell(table, column, row.Keys...)
			}
		}
	}
	return sum
}
