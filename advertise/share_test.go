package advertise

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestShares(t *testing.T) {
	for _, c := range []struct {
		bandwidths []float64
		want       []int
	}{
		{nil, nil},
		{[]float64{1e9, 1e9, 1e9}, nil},
		{[]float64{1e9, 0}, nil},
		{[]float64{1e9, math.NaN()}, nil},
		{[]float64{1e9, math.Inf(1)}, nil},
		{[]float64{1e9, 1.001e9}, nil},
		{[]float64{1e9, 2e9}, []int{1, 2}},
		{[]float64{125e6, 62.5e6, 125e6}, []int{2, 1, 2}},
		{[]float64{3, 5, 7}, []int{3, 5, 7}},
		{[]float64{1, 1e6}, []int{1, 128}}, // as close as the limits allow
	} {
		if got := Shares(c.bandwidths); !slices.Equal(got, c.want) {
			t.Errorf("shares of %v are %v, want %v", c.bandwidths, got, c.want)
		}
	}
}

func TestSharesAreBoundedAndNear(t *testing.T) {
	for range 2000 {
		bandwidths := make([]float64, 2+rand.IntN(254))
		for i := range bandwidths {
			bandwidths[i] = 1 + 9*rand.Float64()
		}
		shares := Shares(bandwidths)
		if shares == nil && len(bandwidths) <= 16 { // equal shares: as exact as any other result must be
			shares = slices.Repeat([]int{1}, len(bandwidths))
		}
		sum, total := 0, 0.0
		for i, s := range shares {
			if s < 1 || s > maxShare {
				t.Fatalf("share %d of %v", s, bandwidths)
			}
			sum, total = sum+s, total+bandwidths[i]
		}
		if len(shares) != len(bandwidths) || sum > maxShares {
			t.Fatalf("%d shares, together %d, of %d bandwidths", len(shares), sum, len(bandwidths))
		}
		if len(shares) > 16 {
			continue // with so many, few numbers are left for each
		}
		for i, s := range shares {
			if want := bandwidths[i] / total; math.Abs(float64(s)/float64(sum)-want) > 0.1*want {
				t.Fatalf("share %d of %d for %f of %f", s, sum, bandwidths[i], total)
			}
		}
	}
}
