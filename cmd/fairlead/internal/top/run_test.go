package top

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"

	"github.com/fairlead/fairlead/agent/rates"
	"github.com/fairlead/fairlead/lab/testkit"
)

func answer(_ context.Context, w Wants) Sample { return agent(w) }

// TestRun drives a screen in memory with keys.
func TestRun(t *testing.T) {
	screen := tcell.NewSimulationScreen("UTF-8")
	done := make(chan error, 1)
	go func() { done <- Run(t.Context(), screen, start(Services), answer) }()
	shows := func(words string) {
		t.Helper()
		testkit.Eventually(t, 10*time.Second, func() error {
			var b strings.Builder
			cells, _, _ := screen.GetContents()
			for _, c := range cells {
				b.WriteString(string(c.Runes))
			}
			if !strings.Contains(b.String(), words) {
				return fmt.Errorf("no %q on %s", words, b.String())
			}
			return nil
		})
	}
	shows("> shop/web")
	screen.InjectKey(tcell.KeyEnter, 0, tcell.ModNone)
	shows("> TCP 10.1.1.1:80")
	screen.InjectKey(tcell.KeyEscape, 0, tcell.ModNone)
	screen.InjectKey(tcell.KeyRune, '5', tcell.ModNone)
	shows("tor-2")
	screen.InjectKey(tcell.KeyRune, 'q', tcell.ModNone)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Without color, no style has one.
func TestNoColor(t *testing.T) {
	for s := Plain; s <= Dim; s++ {
		if fg, bg, _ := styleFor(s, false).Decompose(); fg != tcell.ColorDefault || bg != tcell.ColorDefault {
			t.Errorf("style %d has colors", s)
		}
	}
	if styleFor(Bad, true) == styleFor(Plain, true) || styleFor(Bad, false) == styleFor(Plain, false) || styleFor(Selected, false) == styleFor(Plain, false) {
		t.Error("what is wrong or selected looks like everything else")
	}
}

// A table needs two readings, unless counters cannot be read.
func TestOnce(t *testing.T) {
	asked := 0
	fetch := func(_ context.Context, w Wants) Sample {
		asked++
		s := agent(w)
		if asked == 1 {
			s.Report.Seconds, s.Report.Next = 0, 0.001
		}
		return s
	}
	r, err := Once(t.Context(), start(Services), 7, fetch)
	if err != nil || asked != 2 || r.Seconds != 1 {
		t.Errorf("%d queries, %+v, %v", asked, r, err)
	}
	s := Sheet(r)
	if len(s.Rows) != 3 || len(s.Rows[0]) != len(s.Head) || s.Rows[0][0] != "shop/web" {
		t.Errorf("%+v", s)
	}
	r.View = rates.Node
	if s := Sheet(r); len(s.Rows) != 2 || s.Rows[0][0] != "no-frontend" {
		t.Errorf("%+v", s)
	}
	broken := func(_ context.Context, w Wants) Sample {
		s := agent(w)
		s.Report.Seconds, s.Report.Error = 0, "reading counters: no"
		return s
	}
	if r, err := Once(t.Context(), start(Services), 7, broken); err != nil || !strings.Contains(strings.Join(Sheet(r).Lines, " "), "reading counters") {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := Once(t.Context(), start(Services), 7, func(context.Context, Wants) Sample { return Sample{Err: errors.New("no")} }); err == nil {
		t.Error("no error")
	}
}
