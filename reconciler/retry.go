package reconciler

import (
	"time"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
)

// failure is a frontend that could not be written or deleted, and when that is tried
// again. Others do not wait for it.
type failure struct {
	// wish is what could not be written; with no backends: it could not be deleted.
	wish  desired.Frontend
	err   error
	tries int
	due   time.Time
}

// backoff is the pause after so many failures in a row.
func backoff(tries int) time.Duration {
	return min(retryFirst<<min(tries-1, 10), retryLast)
}

// rests says that a call for a frontend failed, and is not due again; its error is
// then noted as one of this pass. Another wish is tried at once.
func (l *Loop) rests(k service.Key, wish desired.Frontend, failures map[string]error) bool {
	f := l.failed[k]
	if f == nil || !f.wish.Same(wish) || !time.Now().Before(f.due) {
		return false
	}
	failures[k.String()], l.rested[k.String()] = f.err, true
	return true
}

// fail notes that a call for a frontend failed. What it has left is not known: the
// next pass reads what the data plane holds.
func (l *Loop) fail(k service.Key, wish desired.Frontend, err error, failures map[string]error) {
	tries := 1
	if f := l.failed[k]; f != nil {
		tries = f.tries + 1
	}
	l.failed[k] = &failure{wish: wish, err: err, tries: tries, due: time.Now().Add(backoff(tries))}
	failures[k.String()] = err
	l.unsure = true
}

// nextRetry is when the first frontend is due again; 0 for none.
func (l *Loop) nextRetry() time.Duration {
	var next time.Duration
	for _, f := range l.failed {
		next = first(next, max(time.Until(f.due), time.Millisecond))
	}
	return next
}

// hopeless is after how many tries a frontend that cannot be written, though
// others can, keeps no route of theirs from being announced.
const hopeless = 3

// isHopeless says that a frontend has failed so often.
func (l *Loop) isHopeless(k service.Key) bool {
	f := l.failed[k]
	return f != nil && f.tries >= hopeless
}
