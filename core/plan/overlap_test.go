package plan

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/core/service"
)

// TestOverlaps compares the result with a scan of all ranges.
func TestOverlaps(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		ranges, all := portRanges{}, []*Frontend{}
		for range 60 {
			k := service.Key{VIP: address(rng.IntN(2)), Protocol: []service.Protocol{service.TCP, service.UDP}[rng.IntN(2)]}
			k.Port = uint16(1 + rng.IntN(200))
			k.Last = k.Port + uint16(rng.IntN(30))
			f := &Frontend{Key: k}
			i := slices.IndexFunc(all, func(o *Frontend) bool { return o.Key.Overlaps(k) })
			got := ranges.overlapping(k)
			if (got != nil) != (i >= 0) || got != nil && !got.Key.Overlaps(k) {
				t.Fatalf("%s overlaps %v, want one: %v", k, got, i >= 0)
			}
			if got == nil {
				ranges.add(f)
				all = append(all, f)
			}
		}
	}
}
