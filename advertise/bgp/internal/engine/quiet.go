package engine

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Limits for log lines with the same text: a burst and a rate per second, because peers
// and unknown senders determine how often most of them are written.
const (
	logBurst     = 200
	logPerSecond = 10
	// maxTexts limits the number of distinct texts that are tracked.
	maxTexts = 256
)

// quiet is a log handler with a rate limit per text. The next line with a suppressed text
// reports how often it was suppressed.
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

// bucket is a leaky bucket of events.
type bucket struct {
	level float64
	last  time.Time
}

// take reports whether one more event is within the burst and the rate per second. An
// event that is not does not count.
func (b *bucket) take(now time.Time, burst int, rate float64) bool {
	b.level = max(0, b.level-now.Sub(b.last).Seconds()*rate)
	b.last = now
	if b.level+1 > float64(burst) {
		return false
	}
	b.level++
	return true
}
