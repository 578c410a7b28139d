package health_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/health"
)

// letters writes the state after each outcome: outcomes are + and -, states
// u(nknown), U(p) and D(own).
func letters(outcomes string, rise, fall int) string {
	var t health.Tracker
	var b strings.Builder
	for _, o := range outcomes {
		t = t.Next(o == '+', rise, fall)
		b.WriteByte("uUD"[t.State])
	}
	return b.String()
}

func TestThresholds(t *testing.T) {
	for _, c := range []struct {
		name           string
		rise, fall     int
		outcomes, want string
	}{
		{"first good decides alone", 3, 3, "+", "U"},
		{"first bad decides alone", 3, 3, "-", "D"},
		{"fall of one", 1, 1, "+-+-", "UDUD"},
		{"fall after two", 2, 2, "+--", "UUD"},
		{"rise after two", 2, 2, "-++", "DDU"},
		{"rise after three", 3, 1, "-+++", "DDDU"},
		{"a good one between forgives", 2, 3, "+--+--+---", "UUUUUUUUUD"},
		{"a bad one between resets the rise", 3, 1, "-++-++-+++", "DDDDDDDDDU"},
		{"flapping stays up", 2, 2, "+-+-+-+-", "UUUUUUUU"},
		{"flapping stays down", 2, 2, "-+-+-+-+", "DDDDDDDD"},
		{"a change starts counting anew", 2, 2, "+--++--", "UUDDUUD"},
		{"thresholds of 0 are 1", 0, 0, "+-+", "UDU"},
		{"different rise and fall", 1, 4, "+----+", "UUUUDU"},
	} {
		if got := letters(c.outcomes, c.rise, c.fall); got != c.want {
			t.Errorf("%s: rise %d fall %d %s: got %s, want %s", c.name, c.rise, c.fall, c.outcomes, got, c.want)
		}
	}
}

// The slow twin: the state after each probe is what the last change was to,
// found by looking at the whole history each time.
func slow(outcomes string, rise, fall int) string {
	var states []byte
	for i := range outcomes {
		if i == 0 {
			states = append(states, map[bool]byte{true: 'U', false: 'D'}[outcomes[0] == '+'])
			continue
		}
		now := states[i-1]
		since := strings.LastIndexAny(string(states), map[byte]string{'U': "D", 'D': "U"}[now]) + 1
		window := outcomes[since+1 : i+1]
		if now == 'U' && strings.HasSuffix(window, strings.Repeat("-", fall)) {
			now = 'D'
		} else if now == 'D' && strings.HasSuffix(window, strings.Repeat("+", rise)) {
			now = 'U'
		}
		states = append(states, now)
	}
	return string(states)
}

func TestThresholdsLikeSlowTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		rise, fall := 1+r.IntN(4), 1+r.IntN(4)
		outcomes := make([]byte, r.IntN(40))
		for i := range outcomes {
			outcomes[i] = "+-"[r.IntN(2)]
		}
		got, want := letters(string(outcomes), rise, fall), slow(string(outcomes), rise, fall)
		if got != want {
			t.Fatalf("rise %d fall %d %s: got %s, want %s", rise, fall, outcomes, got, want)
		}
	}
}
