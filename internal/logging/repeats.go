package logging

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Limits of repeated lines: of equal lines within a window, the first ones are written at
// once, the others are counted, and the last one is written with their number at the end.
const (
	burst  = 5
	window = 10 * time.Second
	// maxLines limits the number of different lines that are tracked. More are written.
	maxLines = 1024
)

// line is a line and where to write it.
type line struct {
	to     slog.Handler
	record slog.Record
}

// repeats counts equal lines.
type repeats struct {
	mu   sync.Mutex
	seen map[string]*repeated
}

// repeated is a line that was written within the last window.
type repeated struct {
	n    int // in this window
	held int // of these, not written
	last line
}

// pass reports whether to write a line now.
func (t *repeats) pass(key string, l line) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.seen[key]
	if s == nil {
		if len(t.seen) >= maxLines {
			return true
		}
		s = &repeated{}
		t.seen[key] = s
		time.AfterFunc(window, func() { t.end(key) })
	}
	if s.n++; s.n <= burst {
		return true
	}
	s.held, s.last = s.held+1, l
	return false
}

// end ends the window of a line. If it was repeated, another window begins, so that it is
// written once per window from now on.
func (t *repeats) end(key string) {
	t.mu.Lock()
	s := t.seen[key]
	held, last := s.held, s.last
	if held == 0 {
		delete(t.seen, key)
	} else {
		*s = repeated{n: burst}
		time.AfterFunc(window, func() { t.end(key) })
	}
	t.mu.Unlock()
	last.write(held)
}

// flush writes all lines that were held back.
func (t *repeats) flush() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.seen {
		s.last.write(s.held)
		s.held = 0
	}
}

// write writes a line that was held back n times.
func (l line) write(n int) {
	if n == 0 {
		return
	}
	r := l.record.Clone()
	r.AddAttrs(slog.Int("repeated", n))
	_ = l.to.Handle(context.Background(), r) // slog ignores such errors, too
}

// identity returns what equal lines have in common: everything except measured values.
func identity(bound string, r slog.Record) string {
	key := r.Level.String() + bound + "\x00" + r.Message
	r.Attrs(func(a slog.Attr) bool {
		key += attribute(a)
		return true
	})
	return key
}

// attribute returns the part of an attribute that identifies a line. Numbers and times are
// different in each of otherwise equal lines.
func attribute(a slog.Attr) string {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindString, slog.KindAny, slog.KindBool, slog.KindGroup:
		return "\x00" + a.Key + "=" + v.String()
	}
	return "\x00" + a.Key
}
