// Package beyondtest contains helpers shared by the tests of the experiments.
package beyondtest

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"testing"

	"github.com/fairlead/fairlead/lab/sim/experiments"
	"github.com/fairlead/fairlead/lab/sim/verdict"
)

// Run runs the small variant of an experiment, and fails the test on an error.
func Run(t *testing.T, e *experiments.Experiment, seed uint32, workers int) *experiments.Result {
	t.Helper()
	r, err := e.Run(experiments.NewRun(t.Context(), e, seed, workers, nil))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Same checks that the small variant's results are bit-identical to the recorded
// checksum, with any number of workers, and that they differ with another seed.
func Same(t *testing.T, e experiments.Experiment, want uint64) {
	t.Helper()
	for _, workers := range []int{1, 3} {
		if got := Sum(Run(t, &e, 1, workers)); got != want {
			t.Errorf("%s with %d workers: sum %#x, want %#x", e.Name, workers, got, want)
		}
	}
	if Sum(Run(t, &e, 2, 3)) == want {
		t.Errorf("%s: another seed changes nothing", e.Name)
	}
}

// Sum returns a checksum over all names and the bits of all numbers.
func Sum(r *experiments.Result) uint64 {
	h := fnv.New64a()
	number := func(x float64) { _, _ = h.Write(binary.LittleEndian.AppendUint64(nil, math.Float64bits(x))) }
	for _, t := range r.Tables {
		for _, row := range t.Rows {
			fmt.Fprintf(h, "%q %q", t.Name, row.Keys)
			for _, v := range row.Values {
				number(v)
			}
		}
	}
	for _, p := range r.Pictures {
		for _, s := range p.Series {
			fmt.Fprintf(h, "%q %q", p.Name, s.Name)
			for _, at := range s.Points {
				number(at.X)
				number(at.Y)
			}
		}
	}
	return h.Sum64()
}

// Verdicts checks the verdicts of the small variant's claims, in order. Claims with the
// wanted verdict Unknown are skipped.
func Verdicts(t *testing.T, e experiments.Experiment, want ...verdict.Verdict) {
	t.Helper()
	if len(want) != len(e.Claims) {
		t.Fatalf("%s: %d claims, %d verdicts", e.Name, len(e.Claims), len(want))
	}
	r := []*experiments.Result{Run(t, &e, 1, 3)}
	for i, c := range e.Claims {
		if f := c.Judge(r); f.Verdict != want[i] && want[i] != verdict.Unknown {
			t.Errorf("%s: %s: %s, found %v; want %s", e.Name, c.Text, f.Verdict, f.Found, want[i])
		}
	}
}
