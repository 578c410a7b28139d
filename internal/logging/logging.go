// Package logging writes the log of a process: as text or JSON, from a level that can be
// changed while it runs, and without floods of equal lines. Keys lists the attributes that
// lines may have.
//
// What to log, and at which level, is up to the callers. Tests use a Log with a buffer and
// a fake clock (testing/synctest).
package logging

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Log is the log of a process. Its level and format apply to all handlers derived from it.
type Log struct {
	level slog.LevelVar
	json  atomic.Bool
	to    io.Writer
	lines repeats

	mu sync.Mutex
	// until is when the level becomes normal again, or zero.
	until  time.Time
	normal slog.Level
	revert *time.Timer
}

// New returns a Log that writes text from level INFO.
func New(w io.Writer) *Log {
	return &Log{to: &lockedWriter{w: w}, lines: repeats{seen: map[string]*repeated{}}}
}

// lockedWriter lets the handlers of both formats write to one file.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// Logger returns a logger that writes to the Log.
func (l *Log) Logger() *slog.Logger {
	options := &slog.HandlerOptions{Level: &l.level}
	return slog.New(handler{log: l, text: slog.NewTextHandler(l.to, options), json: slog.NewJSONHandler(l.to, options)})
}

// Of returns the Log that a logger writes to, or nil if it writes elsewhere.
func Of(logger *slog.Logger) *Log {
	h, _ := logger.Handler().(handler)
	return h.log
}

// Format is a format of log lines. It is a flag (pflag.Value).
type Format struct{ log *Log }

// Formats are the formats of log lines.
var Formats = []string{"text", "json"}

// Format returns the format of the Log as a flag.
func (l *Log) Format() Format { return Format{l} }

func (f Format) String() string {
	if f.log != nil && f.log.json.Load() {
		return Formats[1]
	}
	return Formats[0]
}

// Set implements pflag.Value.
func (f Format) Set(s string) error {
	if s != Formats[0] && s != Formats[1] {
		return fmt.Errorf("%q is neither text nor json", s)
	}
	f.log.json.Store(s == Formats[1])
	return nil
}

// Type implements pflag.Value.
func (Format) Type() string { return "format" }

// State is the level of a Log.
type State struct {
	Level slog.Level `json:"level"`
	// Until is when the level becomes Normal again; zero if it stays.
	Until  time.Time  `json:"until,omitzero"`
	Normal slog.Level `json:"normal"`
}

// String returns "debug until 14:05:00, then info".
func (s State) String() string {
	name := strings.ToLower(s.Level.String())
	if s.Until.IsZero() {
		return name
	}
	return fmt.Sprintf("%s until %s, then %s", name, s.Until.Local().Format(time.TimeOnly), strings.ToLower(s.Normal.String()))
}

// Level returns the level as a flag.
func (l *Log) Level() *slog.LevelVar { return &l.level }

// State returns the current level.
func (l *Log) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state()
}

func (l *Log) state() State {
	s := State{Level: l.level.Level(), Until: l.until, Normal: l.normal}
	if s.Until.IsZero() {
		s.Normal = s.Level
	}
	return s
}

// SetLevel changes the level: for a while, or permanently if the duration is 0.
func (l *Log) SetLevel(level slog.Level, duration time.Duration) State {
	l.mu.Lock()
	defer l.mu.Unlock()
	normal := l.state().Normal
	if l.revert != nil {
		l.revert.Stop()
	}
	l.until, l.normal, l.revert = time.Time{}, normal, nil
	l.level.Set(level)
	if duration > 0 {
		until := time.Now().Add(duration)
		l.until = until
		l.revert = time.AfterFunc(duration, func() { l.end(until) })
	}
	return l.state()
}

// end restores the normal level, unless another change came first.
func (l *Log) end(until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.until.Equal(until) {
		l.level.Set(l.normal)
		l.until = time.Time{}
	}
}

// Flush writes what is pending of repeated lines.
func (l *Log) Flush() { l.lines.flush() }

// handler is a slog.Handler for the format that the Log has when a line is written.
type handler struct {
	log        *Log
	text, json slog.Handler
	// bound identifies the attributes and groups that all lines have.
	bound string
}

// Enabled implements slog.Handler.
func (h handler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.log.level.Level()
}

// Handle implements slog.Handler.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	to := h.text
	if h.log.json.Load() {
		to = h.json
	}
	if !h.log.lines.pass(identity(h.bound, r), line{to, r}) {
		return nil
	}
	return to.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.text, h.json = h.text.WithAttrs(attrs), h.json.WithAttrs(attrs)
	for _, a := range attrs {
		h.bound += attribute(a)
	}
	return h
}

// WithGroup implements slog.Handler.
func (h handler) WithGroup(name string) slog.Handler {
	h.text, h.json = h.text.WithGroup(name), h.json.WithGroup(name)
	h.bound += name + "."
	return h
}
