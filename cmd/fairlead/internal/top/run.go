package top

import (
	"context"
	"os"
	"time"

	"github.com/gdamore/tcell/v2"
)

// Fetch queries an agent for what a page needs.
type Fetch func(context.Context, Wants) Sample

// shortest is the least time between two queries.
const shortest = 100 * time.Millisecond

// pause returns how long to wait after an answer for new rates.
func (m *Model) pause(s Sample) time.Duration {
	if s.Err != nil {
		return m.interval
	}
	return max(time.Duration(s.Report.Next*float64(time.Second)), shortest)
}

// Run shows a model on a screen until the user leaves or ctx ends.
func Run(ctx context.Context, screen tcell.Screen, m *Model, fetch Fetch) error {
	if err := screen.Init(); err != nil {
		return err
	}
	defer screen.Fini()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	input := make(chan tcell.Event, 16)
	go screen.ChannelEvents(input, ctx.Done())
	r := runner{model: m, fetch: fetch, answers: make(chan Sample, 1), timer: time.NewTimer(0)}
	defer r.timer.Stop()
	m.Resize(screen.Size())
	for draw(screen, m.View()); !m.Done(); draw(screen, m.View()) {
		select {
		case <-ctx.Done():
			return nil
		case e, open := <-input:
			if !open {
				return nil
			}
			r.input(ctx, screen, e)
		case s := <-r.answers:
			r.answered(ctx, s)
		case <-r.timer.C:
			if !m.Paused() {
				r.query(ctx)
			}
		}
	}
	return nil
}

// runner has at most one query in progress.
type runner struct {
	model   *Model
	fetch   Fetch
	answers chan Sample
	timer   *time.Timer
	busy    bool
	last    Wants
}

func (r *runner) query(ctx context.Context) {
	if r.busy {
		return
	}
	w := r.model.Wants()
	r.busy, r.last = true, w
	go func() { r.answers <- r.fetch(ctx, w) }()
}

// changed reports whether the page needs something else than was queried last.
func (r *runner) changed() bool {
	w := r.model.Wants()
	w.Since = r.last.Since
	return w != r.last
}

func (r *runner) input(ctx context.Context, screen tcell.Screen, e tcell.Event) {
	switch e := e.(type) {
	case *tcell.EventResize:
		r.model.Resize(e.Size())
		screen.Sync()
	case *tcell.EventKey:
		paused := r.model.Paused()
		r.model.Key(nameOf(e))
		if r.changed() || paused && !r.model.Paused() {
			r.query(ctx)
		}
	}
}

func (r *runner) answered(ctx context.Context, s Sample) {
	r.busy = false
	r.model.Answered(s)
	if r.changed() {
		r.query(ctx)
		return
	}
	r.timer.Reset(r.model.pause(s))
}

// names are the keys that are not characters.
var names = map[tcell.Key]string{
	tcell.KeyUp: "up", tcell.KeyDown: "down", tcell.KeyLeft: "left", tcell.KeyRight: "right", tcell.KeyPgUp: "pgup", tcell.KeyPgDn: "pgdn",
	tcell.KeyHome: "home", tcell.KeyEnd: "end", tcell.KeyEnter: "enter", tcell.KeyEscape: "esc", tcell.KeyTab: "tab", tcell.KeyBacktab: "backtab",
	tcell.KeyBackspace: "backspace", tcell.KeyBackspace2: "backspace", tcell.KeyCtrlC: "ctrl+c",
}

func nameOf(e *tcell.EventKey) string {
	if e.Key() == tcell.KeyRune {
		return string(e.Rune())
	}
	return names[e.Key()]
}

// draw shows lines. Only cells that differ are sent to the terminal.
func draw(screen tcell.Screen, lines []Line) {
	width, _ := screen.Size()
	colors := screen.Colors() >= 8 && os.Getenv("NO_COLOR") == ""
	for y, l := range lines {
		style, x := styleFor(l.Style, colors), 0
		for _, c := range l.Text {
			screen.SetContent(x, y, c, nil, style)
			x++
		}
		for ; x < width; x++ {
			screen.SetContent(x, y, ' ', nil, style)
		}
	}
	screen.Show()
}

func styleFor(s Style, colors bool) tcell.Style {
	plain := tcell.StyleDefault
	switch {
	case s == Title || s == Head:
		return plain.Bold(true)
	case s == Selected:
		return plain.Reverse(true)
	case s == Bad && colors:
		return plain.Foreground(tcell.ColorMaroon) // the terminal's own red
	case s == Warn && colors:
		return plain.Foreground(tcell.ColorOlive)
	case s == Bad:
		return plain.Bold(true)
	case s == Dim && colors:
		return plain.Dim(true)
	}
	return plain
}
