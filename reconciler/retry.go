package reconciler

import (
	"time"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
)

// failure is a frontend that could not be written or deleted, and when to retry. Others
// do not wait for it.
type failure struct {
	// wish is what could not be written. Without backends: it could not be deleted.
	wish  desired.Frontend
	err   error
	tries int
	due   time.Time
}

// backoff returns the pause after that many consecutive failures.
func backoff(tries int) time.Duration {
	return min(retryFirst<<min(tries-1, 10), retryLast)
}

// rests reports whether a call for a frontend failed and is not due for a retry; its
// error is then recorded for this pass. A different desired state is tried immediately.
func (l *Loop) rests(k service.Key, wish desired.Frontend, failures map[string]error) bool {
	f := l.failed[k]
	if f == nil || !f.wish.Same(wish) || !time.Now().Before(f.due) {
		return false
	}
	failures[k.String()], l.rested[k.String()] = f.err, true
	return true
}

// fail records that a call for a frontend failed. The resulting state is unknown, so the
// next pass reads the data plane.
func (l *Loop) fail(k service.Key, wish desired.Frontend, err error, failures map[string]error) {
	tries := 1
	if f := l.failed[k]; f != nil {
		tries = f.tries + 1
	}
	l.failed[k] = &failure{wish: wish, err: err, tries: tries, due: time.Now().Add(backoff(tries))}
	failures[k.String()] = err
	l.unsure = true
}

// nextRetry returns when the first frontend is due again, or 0 for none.
func (l *Loop) nextRetry() time.Duration {
	var next time.Duration
	for _, f := range l.failed {
		next = first(next, max(time.Until(f.due), time.Millisecond))
	}
	return next
}

// maxAttempts is the number of failures after which a frontend no longer prevents the routes
// that it shares with others from being advertised.
const maxAttempts = 3

// isExhausted reports whether a frontend has failed maxAttempts times.
func (l *Loop) isExhausted(k service.Key) bool {
	f := l.failed[k]
	return f != nil && f.tries >= maxAttempts
}
