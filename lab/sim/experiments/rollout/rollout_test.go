package rollout

import (
	"context"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/lab/sim/experiments"
	"github.com/fairlead/fairlead/lab/sim/experiments/follow"
)

func tiny(t *testing.T, workers int) *experiments.Result {
	t.Helper()
	e := Experiment()
	r, err := e.Run(experiments.NewRun(context.Background(), &e, 3, workers, map[string]float64{"servers": 10, "balancers": 3, "slots": 251, "rate": 20}))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestWorkersChangeNothing(t *testing.T) {
	one := tiny(t, 1)
	if !reflect.DeepEqual(one, tiny(t, 3)) {
		t.Error("with three workers another result")
	}
	second, alone := total(one, batchTable, follow.SecondChance.String()), total(one, batchTable, follow.Maglev.String())
	if alone < 1000 || second > alone/100 {
		t.Errorf("second chance breaks %v, a ring alone %v", second, alone)
	}
	if total(one, batchTable, follow.FlowTable.String()) != 0 || total(one, drainTable, follow.FlowTable.String(), 1, "are replaced") == 0 {
		t.Error("a flow table is to break where balancers change as well, and there alone")
	}
}

func scenery() scene {
	return scene{servers: 10, balancers: 3, slots: 251, buckets: 512, rate: 100, mean: 30, lives: follow.NewLives(30, 0.5), seed: 9}
}

// TestDrainTimes checks that a server that ends immediately loses all connections, and
// that one that ends after all of them have closed loses none.
func TestDrainTimes(t *testing.T) {
	for drain, want := range map[float64]float64{0: 3000, 1000: 0} {
		moves, last := rolling(10, 10, drain, 10, true)
		got, err := scenery().play(context.Background(), inOrder(moves, 0, last), 1100)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(float64(got.lost)-want) > 0.01*want {
			t.Errorf("drained for %v s: %d lost, want about %v", drain, got.lost, want)
		}
	}
}

// TestLoadFollowsWhoServes checks that if half of the servers are removed, the others get
// up to twice their share.
func TestLoadFollowsWhoServes(t *testing.T) {
	got, err := scenery().play(context.Background(), []move{{drain: numbers(1, 5)}}, 600)
	if err != nil || got.fullest < 1.9 || got.fullest > 2.4 {
		t.Errorf("half are away: %+v, %v", got.fullest, err)
	}
	got, err = scenery().play(context.Background(), nil, 600)
	if err != nil || got.fullest > 1.3 || got.emptiest < 0.7 || got.even > every || got.open+got.closed != got.followed {
		t.Errorf("nothing happens: %+v, %v", got, err)
	}
}

func TestRollingReplacesAll(t *testing.T) {
	for _, surge := range []bool{true, false} {
		moves, _ := rolling(10, 3, 7, 10, surge)
		serving, there := numbers(1, 10), numbers(1, 10)
		for _, m := range inOrder(moves, 0, 0) {
			serving, there = append(serving, m.add...), append(there, m.add...)
			for _, id := range m.drain {
				serving = slices.Delete(serving, slices.Index(serving, id), slices.Index(serving, id)+1)
			}
			for _, id := range m.remove {
				there = slices.Delete(there, slices.Index(there, id), slices.Index(there, id)+1)
			}
			if surge && len(serving) < 10 || len(serving) < 7 {
				t.Errorf("surge %v: %d serve after %+v", surge, len(serving), m)
			}
		}
		if !slices.Equal(serving, numbers(11, 10)) || !slices.Equal(there, serving) {
			t.Errorf("surge %v: %v serve, %v are there", surge, serving, there)
		}
	}
}
