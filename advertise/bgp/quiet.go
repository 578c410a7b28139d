package bgp

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Of log lines with the same text so many pass at once, and so many a second: peers
// and strangers decide how often most of them are written.
const (
	logBurst     = 200
	logPerSecond = 10
	// maxTexts bounds the texts that are told apart.
	maxTexts = 256
)

// quiet is a log handler with a limit for each text. The next line with a text that
// had to be left out says how often it was.
type quiet struct {
	slog.Handler
	limits *logLimits
}

type logLimits struct {
	mu    sync.Mutex
	texts map[string]*logLimit
}

type logLimit struct {
	bucket  bucket
	dropped int
}

func quieten(log *slog.Logger) *slog.Logger {
	return slog.New(quiet{log.Handler(), &logLimits{texts: map[string]*logLimit{}}})
}

// Handle implements slog.Handler.
func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	dropped, pass := q.limits.take(r.Message, time.Now())
	if !pass {
		return nil
	}
	if dropped > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("suppressed", dropped))
	}
	return q.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler {
	return quiet{q.Handler.WithAttrs(attrs), q.limits}
}

// WithGroup implements slog.Handler.
func (q quiet) WithGroup(name string) slog.Handler {
	return quiet{q.Handler.WithGroup(name), q.limits}
}

func (l *logLimits) take(text string, now time.Time) (dropped int, pass bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	limit := l.texts[text]
	if limit == nil {
		if len(l.texts) >= maxTexts {
			clear(l.texts)
		}
		limit = &logLimit{}
		l.texts[text] = limit
	}
	if !limit.bucket.take(now, logBurst, logPerSecond) {
		limit.dropped++
		return 0, false
	}
	dropped, limit.dropped = limit.dropped, 0
	return dropped, true
}

// bucket counts events and forgets some each second.
type bucket struct {
	level float64
	last  time.Time
}

// take says whether one more event is within burst at once and rate a second. One
// that is not does not count.
func (b *bucket) take(now time.Time, burst int, rate float64) bool {
	b.level = max(0, b.level-now.Sub(b.last).Seconds()*rate)
	b.last = now
	if b.level+1 > float64(burst) {
		return false
	}
	b.level++
	return true
}
