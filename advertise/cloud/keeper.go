package cloud

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/fairlead/fairlead/advertise"
)

// Timing of a Keeper.
const (
	// DefaultResync is the interval of comparisons with the cloud if nothing has changed.
	DefaultResync = time.Minute
	// retryFirst and retryLast limit the exponential backoff after failures.
	retryFirst = time.Second
	retryLast  = time.Minute
	// changePause is the minimum time between two Syncs, even if offers change.
	changePause = time.Second
	// syncTime is the timeout of one Sync.
	syncTime = 2 * time.Minute
)

// Values of State.State, in addition to advertise.Established, which means that
// everything is carried.
const (
	// Failing: something failed and is retried.
	Failing = "failing"
	// Blocked: something is rejected, and an operator must fix it.
	Blocked = "rejected"
)

// State describes the state of a cloud.
type State struct {
	// Name is the name of the Provider.
	Name      string    `json:"name"`
	State     string    `json:"state"`
	Since     time.Time `json:"since"`
	LastError string    `json:"lastError,omitempty"`
	// Undone lists, if State is Failing, the prefixes for which something is not done, if
	// all others are done; empty if that is not known.
	Undone []netip.Prefix `json:"undone,omitempty"`
}

// Done reports whether the cloud carries a prefix as offered, or does not carry it if it
// was not offered.
func (s State) Done(p netip.Prefix) bool {
	switch s.State {
	case advertise.Established, Blocked:
		return true
	case Failing:
		return len(s.Undone) > 0 && !slices.Contains(s.Undone, p)
	}
	return false
}

// maxUndone limits the prefixes in State.Undone, which become part of a Lease.
const maxUndone = 256

// undone returns the prefixes that an error is about; none if it is about anything else,
// too.
func undone(err error) []netip.Prefix {
	routes, rest := advertise.RouteErrors(err)
	if len(rest) > 0 || len(routes) > maxUndone {
		return nil
	}
	return slices.SortedFunc(maps.Keys(routes), netip.Prefix.Compare)
}

// Peer returns a State in the form of a BGP peer.
func (s State) Peer(sent int) advertise.Peer {
	return advertise.Peer{Address: s.Name, State: s.State, Since: s.Since, LastError: s.LastError, BFD: "off", Sent: uint32(sent)}
}

// Waiting returns the State before the first Sync.
func Waiting(name string, now time.Time) State {
	return State{Name: name, State: "waiting", Since: now}
}

// Keeper calls a Provider when something has changed, when something has failed, with
// backoff, and periodically. It is used by one goroutine.
type Keeper struct {
	Provider Provider
	// Resync defaults to DefaultResync.
	Resync time.Duration
	Log    *slog.Logger

	tried []Offer // the last ones
	at    time.Time
	due   time.Time
	retry time.Duration
	busy  bool // the cloud requested a pause
	state State
}

// isDue reports whether the Provider should be called. Changes go out soon, even while
// something else fails, but not if the cloud requested a pause.
func (k *Keeper) isDue(now time.Time, offers []Offer) bool {
	if !k.busy && !reflect.DeepEqual(offers, k.tried) && now.Sub(k.at) >= changePause {
		return true
	}
	return !now.Before(k.due)
}

// Pass passes the offers to the cloud if that is due, and returns its state and whether
// the state applies to these offers.
func (k *Keeper) Pass(ctx context.Context, offers []Offer) (s State, current bool) {
	if !k.isDue(time.Now(), offers) {
		return k.state, reflect.DeepEqual(offers, k.tried)
	}
	bounded, cancel := context.WithTimeout(ctx, syncTime)
	defer cancel()
	refused, err := k.Provider.Sync(bounded, offers)
	if ctx.Err() != nil {
		return k.state, false // an interrupted call says nothing about the cloud
	}
	next := State{Name: k.Provider.Name(), State: advertise.Established}
	pause := cmp.Or(k.Resync, DefaultResync)
	k.busy = false
	switch {
	case err != nil:
		k.retry = min(max(2*k.retry, retryFirst), retryLast)
		if after, ok := errors.AsType[*Busy](err); ok {
			k.busy, k.retry = true, min(max(k.retry, after.After), retryLast)
		}
		pause = k.retry
		next.State, next.LastError, next.Undone = Failing, err.Error(), undone(err)
	case len(refused) > 0:
		next.State, next.LastError = Blocked, refused.Words()
		fallthrough
	default:
		k.retry = 0
	}
	k.tried, k.at = offers, time.Now()
	k.due = k.at.Add(pause)
	k.set(next)
	return k.state, true
}

// set sets the State, and logs changes.
func (k *Keeper) set(next State) {
	next.Since = k.state.Since
	if next.State != k.state.State {
		next.Since = time.Now()
	}
	if next.State != k.state.State || next.LastError != k.state.LastError {
		level := slog.LevelInfo
		if next.State != advertise.Established {
			level = slog.LevelWarn
		}
		k.Log.Log(context.Background(), level, "cloud routes", "cloud", next.Name, "state", next.State, "error", next.LastError, "retryIn", k.retry)
	}
	if next.LastError == "" && next.State == advertise.Established {
		next.LastError = k.state.LastError // the reason of the last failure
	}
	k.state = next
}

// Busy is the error of a cloud that requests a pause.
type Busy struct {
	After time.Duration
	Err   error
}

// Error returns the text of the answer.
func (b *Busy) Error() string { return b.Err.Error() }

// Unwrap returns the answer.
func (b *Busy) Unwrap() error { return b.Err }
