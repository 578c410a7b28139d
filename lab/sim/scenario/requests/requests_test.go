package requests

import (
	"testing"

	"github.com/fairlead/fairlead/internal/yamltree"
	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
)

// FuzzTrace checks that no trace causes a panic, that accepted requests are in order, and
// that each problem has an existing line number.
func FuzzTrace(f *testing.F) {
	for _, text := range []string{"time,client,bytes\n0,a,1\n", "0 1 2\n1 1 3 # x\n", ",,\n", "1,2,3\n0,2,3", "time\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		fuzzlimit.Time(t)
		asked, problems := Read("x.csv", text)
		last := 0.0
		for _, a := range asked {
			if !(a.At >= last) || a.Client < 0 || a.Client >= len(asked) || a.Size < 0 {
				t.Errorf("%+v after %v passes", a, last)
			}
			last = a.At
		}
		for _, p := range problems {
			if p.Line < 1 || p.Line > yamltree.Lines([]byte(text)) || p.Message == "" {
				t.Errorf("%+v: want a line from 1 to %d and a message", p, yamltree.Lines([]byte(text)))
			}
		}
	})
}
