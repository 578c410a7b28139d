package xdp

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
)

// TestRingsBuiltTogether programs frontends that are announced by Reserve, in that order, in
// another one, and after others that never come: their rings are those that each would have
// alone.
func TestRingsBuiltTogether(t *testing.T) {
	var all []desired.Frontend
	for i := range 60 {
		f := frontend(service.Tunnel, fmt.Sprintf("10.2.0.%d:80", i+1), service.TCP)
		f.RingSize = []int{251, 509}[i%2]
		for b := range 1 + i%7 {
			one := frontend(service.Tunnel, vips[false], service.TCP, fmt.Sprintf("172.16.5.%d:80", (i*3+b)%50+1)).Backends[0]
			one.Since = time.Unix(int64(1000+b/2), 0)
			f.Backends = append(f.Backends, one)
		}
		f.Backends = service.SortBackends(f.Backends)
		all = append(all, f)
	}
	shuffled := slices.Clone(all)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	var rings []string
	for _, c := range []struct {
		name              string
		announced, coming []desired.Frontend
	}{
		{"alone", nil, all}, {"in order", all, all}, {"in another order", all, shuffled}, {"after others", append(shuffled[:20:20], all...), all[20:]},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNet(t)
			d := n.open(t, config())
			must(t, d.Reserve(c.announced))
			for _, f := range c.coming {
				upsert(t, d, f)
			}
			for _, f := range all {
				upsert(t, d, f) // the rest
			}
			must(t, d.grace())
			rings = append(rings, ringsByAddress(t, d))
			if rings[0] != rings[len(rings)-1] {
				t.Errorf("%s: rings differ from those that are built alone", c.name)
			}
		})
	}
}
