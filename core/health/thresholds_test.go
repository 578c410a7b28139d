package health_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/service"
)

// letters returns the state after each result. Results are + and -, states are u(nknown),
// U(p), D(own) and G(one). drain is a number of probes.
func letters(outcomes string, rise, fall, drain int) string {
	var t health.Tracker
	var b strings.Builder
	c := service.HealthCheck{Interval: time.Second, Rise: rise, Fall: fall, Drain: time.Duration(drain) * time.Second}
	for _, o := range outcomes {
		t = t.Next(o == '+', c)
		b.WriteByte("uUDG"[t.State])
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
		{"a change restarts the count", 2, 2, "+--++--", "UUDDUUD"},
		{"thresholds of 0 are 1", 0, 0, "+-+", "UDU"},
		{"different rise and fall", 1, 4, "+----+", "UUUUDU"},
	} {
		if got := letters(c.outcomes, c.rise, c.fall, 99); got != c.want {
			t.Errorf("%s: rise %d fall %d %s: got %s, want %s", c.name, c.rise, c.fall, c.outcomes, got, c.want)
		}
	}
}

// TestGone checks that a backend that stays down is Gone after as many further failures
// as fit in the drain timeout, and that a success in between restarts the timeout.
func TestGone(t *testing.T) {
	for _, c := range []struct {
		name              string
		rise, fall, drain int
		outcomes, want    string
	}{
		{"after three more", 2, 2, 3, "+------", "UUDDDGG"},
		{"at once", 2, 2, 0, "+---", "UUGG"},
		{"the first bad one is none of them", 1, 2, 2, "---+", "DDGU"},
		{"a good one between", 2, 1, 2, "+--+--+---", "UDDDDGGGGG"},
		{"gone comes up as down does", 2, 1, 1, "+---+-++", "UDGGGGGU"},
	} {
		if got := letters(c.outcomes, c.rise, c.fall, c.drain); got != c.want {
			t.Errorf("%s: rise %d fall %d drain %d %s: got %s, want %s", c.name, c.rise, c.fall, c.drain, c.outcomes, got, c.want)
		}
	}
}

// slow is the reference implementation: it derives the state after each probe from the
// complete history.
func slow(outcomes string, rise, fall, drain int) string {
	var states []byte
	went := 0 // where it went down
	for i := range outcomes {
		now := byte('D')
		if i > 0 {
			now = states[i-1]
		} else if outcomes[0] == '+' {
			now = 'U'
		}
		since := strings.LastIndexAny(string(states), map[bool]string{true: "DG", false: "U"}[now == 'U']) + 1
		window := outcomes[min(since+1, i+1) : i+1]
		if now == 'U' && strings.HasSuffix(window, strings.Repeat("-", fall)) {
			now, went = 'D', i
		} else if now != 'U' && strings.HasSuffix(window, strings.Repeat("+", rise)) {
			now = 'U'
		}
		if now == 'D' && strings.HasSuffix(outcomes[went+1:max(i, went)+1], strings.Repeat("-", drain)) && outcomes[i] == '-' {
			now = 'G'
		}
		states = append(states, now)
	}
	return string(states)
}

func TestThresholdsLikeSlowTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		rise, fall, drain := 1+r.IntN(4), 1+r.IntN(4), r.IntN(6)
		outcomes := make([]byte, r.IntN(40))
		for i := range outcomes {
			outcomes[i] = "+-"[r.IntN(2)]
		}
		got, want := letters(string(outcomes), rise, fall, drain), slow(string(outcomes), rise, fall, drain)
		if got != want {
			t.Fatalf("rise %d fall %d drain %d %s: got %s, want %s", rise, fall, drain, outcomes, got, want)
		}
	}
}
