package hierarchy

import (
	"context"
	"math"
	"testing"

	"github.com/fairlead/fairlead/lab/sim/experiments"
	"github.com/fairlead/fairlead/lab/sim/verdict"
)

func TestSmallHolds(t *testing.T) {
	outcomes, _, err := experiments.RunAll(context.Background(), []experiments.Experiment{Experiment()}, experiments.Options{Seeds: 1, Workers: 2, Small: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range outcomes[0].Findings {
		if f.Verdict != verdict.Holds {
			t.Errorf("%s: %s: found %+v, want %s", f.Text, f.Verdict, f.Found, f.Wanted)
		}
	}
}

// TestQueue compares with known results for such queues.
func TestQueue(t *testing.T) {
	for _, c := range []struct {
		load       float64
		room       int
		loss, stay float64
	}{
		{0.5, 1, 0.5 / 1.5, 1},  // Erlang's formula, for any service time distribution
		{0.5, 1000, 0, 1.5},     // unlimited: 1 + load/(2 (1-load))
		{0.9, 2000, 0, 5.5},     // the same
		{2, 1000, 0.5, 999.5},   // always full
		{80, 10, 1 - 1/80., 10}, // the same
	} {
		loss, stay := queue(c.load, c.room)
		if math.Abs(loss-c.loss) > 1e-6 || math.Abs(stay/c.stay-1) > 0.001 {
			t.Errorf("load %v, room for %d: loss %v, stay %v, want %v and %v", c.load, c.room, loss, stay, c.loss, c.stay)
		}
	}
}

func TestShapesHoldAllServers(t *testing.T) {
	all := shapes(100000, deepest)
	if all[0].fanOut != 100000 || all[0].depth != 1 || all[len(all)-1].fanOut != 2 || all[len(all)-1].depth != 17 {
		t.Errorf("from %v to %v", all[0], all[len(all)-1])
	}
	for _, s := range all {
		if s.servers() < 100000 {
			t.Errorf("%v has %d servers", s, s.servers())
		}
	}
}

// TestATreeAnswersAll checks that a tree of any depth answers everything under low load.
func TestATreeAnswersAll(t *testing.T) {
	for _, s := range []tree{{medium: shared, fanOut: 3, depth: 3}, {switched, 3, 3, 1e-6, 10}} {
		o, err := s.packets(context.Background(), 100, 4, 5)
		if err != nil {
			t.Fatal(err)
		}
		if o.offered < 80 || o.replies < 0.9*o.offered || sum(o.lost) != 0 {
			t.Errorf("%v: %+v", s, o)
		}
	}
}
