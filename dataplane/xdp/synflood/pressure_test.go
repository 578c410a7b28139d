package synflood

import (
	"testing"
	"time"
)

// A frontend is guarded as soon as connections are opened that are never established, and
// until half a minute after the last of them. Cookies are accepted for as long as one
// that was sent may be valid.
func TestPressure(t *testing.T) {
	const threshold = 1000.0
	second := func(syns, packets uint64) openings {
		return openings{syns: syns, packets: packets, during: time.Second}
	}
	var (
		busy  = second(20_000, 200_000) // all connections are established
		flood = second(20_000, 21_000)
		few   = second(900, 900)
		half  = second(600, 600) // in between: more than half the threshold
		calm  = second(10, 100)
		table = second(0, 0)
	)
	type state struct{ guarded, checked bool }
	off, on, after := state{}, state{true, true}, state{false, true}
	for name, steps := range map[string][]struct {
		openings openings
		table    bool
		times    int
		want     state
	}{
		"a busy frontend":              {{busy, false, 100, off}},
		"a flood that is too small":    {{few, false, 100, off}},
		"a flood":                      {{flood, false, 1, on}},
		"a flood, and calm":            {{flood, false, 1, on}, {calm, false, 29, on}, {calm, false, 1, after}, {calm, false, 69, after}, {calm, false, 1, off}},
		"calm that is interrupted":     {{flood, false, 1, on}, {calm, false, 29, on}, {flood, false, 1, on}, {calm, false, 29, on}, {calm, false, 1, after}},
		"neither":                      {{flood, false, 1, on}, {half, false, 100, on}, {calm, false, 29, on}, {half, false, 1, on}, {calm, false, 29, on}},
		"busy after a flood":           {{flood, false, 1, on}, {busy, false, 30, after}},
		"a flood that comes back":      {{flood, false, 1, on}, {calm, false, 50, after}, {flood, false, 1, on}, {calm, false, 30, after}, {calm, false, 69, after}},
		"a table that is full":         {{table, true, 1, on}, {calm, true, 100, on}, {calm, false, 30, after}},
		"no traffic, and no time":      {{openings{}, false, 10, off}},
		"a flood in a quarter of that": {{openings{5000, 5100, time.Second / 4}, false, 1, on}},
	} {
		t.Run(name, func(t *testing.T) {
			var p pressure
			for i, s := range steps {
				for range s.times {
					was := p
					changed := p.step(s.openings, threshold, s.table)
					if differs := was.guarded != p.guarded || was.checked != p.checked; changed != differs {
						t.Fatalf("step %d: changed %v, %+v after %+v", i, changed, p, was)
					}
				}
				if got := (state{p.guarded, p.checked}); got != s.want {
					t.Fatalf("after step %d: %+v, want %+v", i, got, s.want)
				}
				if p.idle() != (s.want == off) {
					t.Errorf("after step %d: idle %v", i, p.idle())
				}
			}
		})
	}
}

func TestTableUnderPressure(t *testing.T) {
	for _, c := range []struct {
		was     bool
		opening int
		want    bool
	}{
		{false, 0, false}, {false, 499, false}, {false, 500, true}, {true, 499, true}, {true, 250, true}, {true, 249, false}, {true, 0, false},
	} {
		if got := tableUnderPressure(c.was, c.opening, 1000); got != c.want {
			t.Errorf("%d of 1000, after %v: %v", c.opening, c.was, got)
		}
	}
	if tableUnderPressure(false, 0, 0) {
		t.Error("a table without room, and without flows, is under pressure")
	}
}
