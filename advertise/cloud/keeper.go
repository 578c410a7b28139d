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

// What a Keeper does by itself.
const (
	// DefaultResync is how often all is compared with the cloud where nothing
	// has changed.
	DefaultResync = time.Minute
	// retryFirst and retryLast bound the pauses after a failure, which double.
	retryFirst = time.Second
	retryLast  = time.Minute
	// changePause is between two Syncs at least, also where offers change.
	changePause = time.Second
	// syncTime bounds one Sync.
	syncTime = 2 * time.Minute
)

// Values of State.State, in addition to advertise.Established: all is carried.
const (
	// Failing: not all is done, and it is tried again.
	Failing = "failing"
	// Blocked: something is refused, and somebody has to mend it.
	Blocked = "refused"
)

// State is how a cloud stands, in words.
type State struct {
	// Name is the Provider's.
	Name      string    `json:"name"`
	State     string    `json:"state"`
	Since     time.Time `json:"since"`
	LastError string    `json:"lastError,omitempty"`
	// Undone are, where State is Failing, the prefixes of which something is not
	// done, if all others are; none where that is not known.
	Undone []netip.Prefix `json:"undone,omitempty"`
}

// Done says whether the cloud carries a prefix as it was offered: also that it does
// not where it was not.
func (s State) Done(p netip.Prefix) bool {
	switch s.State {
	case advertise.Established, Blocked:
		return true
	case Failing:
		return len(s.Undone) > 0 && !slices.Contains(s.Undone, p)
	}
	return false
}

// maxUndone is how many prefixes State.Undone has at most: they become a part of a
// Lease.
const maxUndone = 256

// undone gives the prefixes that an error is about; none where it is about more.
func undone(err error) []netip.Prefix {
	routes, rest := advertise.RouteErrors(err)
	if len(rest) > 0 || len(routes) > maxUndone {
		return nil
	}
	return slices.SortedFunc(maps.Keys(routes), netip.Prefix.Compare)
}

// Peer shows a State among BGP's peers.
func (s State) Peer(sent int) advertise.Peer {
	return advertise.Peer{Address: s.Name, State: s.State, Since: s.Since, LastError: s.LastError, BFD: "off", Sent: uint32(sent)}
}

// Waiting is the State before the first Sync.
func Waiting(name string, now time.Time) State {
	return State{Name: name, State: "waiting", Since: now}
}

// Keeper calls a Provider when something has changed, when something has failed,
// later and later, and now and then. It belongs to one goroutine.
type Keeper struct {
	Provider Provider
	// Resync is by default DefaultResync.
	Resync time.Duration
	Log    *slog.Logger

	tried []Offer // last
	at    time.Time
	due   time.Time
	retry time.Duration
	busy  bool // the cloud asked for a pause
	state State
}

// isDue says whether there is reason to call the Provider. What has changed goes
// soon, also while something else fails, but not where the cloud asked for a
// pause.
func (k *Keeper) isDue(now time.Time, offers []Offer) bool {
	if !k.busy && !reflect.DeepEqual(offers, k.tried) && now.Sub(k.at) >= changePause {
		return true
	}
	return !now.Before(k.due)
}

// Pass brings the offers to the cloud if that is due, and says how it stands and
// whether that holds for these offers.
func (k *Keeper) Pass(ctx context.Context, offers []Offer) (s State, current bool) {
	if !k.isDue(time.Now(), offers) {
		return k.state, reflect.DeepEqual(offers, k.tried)
	}
	bounded, cancel := context.WithTimeout(ctx, syncTime)
	defer cancel()
	refused, err := k.Provider.Sync(bounded, offers)
	if ctx.Err() != nil {
		return k.state, false // what was cut short says nothing of the cloud
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

// set takes a State, and logs it where it is another.
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
		k.Log.Log(context.Background(), level, "the cloud's routing", "cloud", next.Name, "state", next.State, "why", next.LastError, "retryIn", k.retry)
	}
	if next.LastError == "" && next.State == advertise.Established {
		next.LastError = k.state.LastError // why it last failed
	}
	k.state = next
}

// Busy is the answer of a cloud that wants to be left alone for a time.
type Busy struct {
	After time.Duration
	Err   error
}

// Error gives the answer's words.
func (b *Busy) Error() string { return b.Err.Error() }

// Unwrap gives the answer.
func (b *Busy) Unwrap() error { return b.Err }
