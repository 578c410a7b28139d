package rates

import (
	"cmp"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/reconciler"
)

const (
	// share bounds the CPU time: a reading and its answers take at most one part in so
	// many of the time until the next reading. That leaves a fifth of 2 % for what is not
	// measured: HTTP and garbage collection.
	share = 64
	// idle is how long after the last query the readings are released: later than the next
	// query of any viewer.
	idle = 5 * MaxInterval
	// lapse is how much later than due a reading may be to be compared with the last one.
	lapse = 5 * time.Second
)

// Config is what a Sampler reads.
type Config struct {
	// Status returns what decides states. Its DataPlane has the counters, if it is not
	// nil.
	Status func() status.Agent
	// Dropped returns how many packets were dropped so far. May be nil.
	Dropped func() (map[Cause]uint64, error)
}

// Sampler reads counters when it is queried, at most once per interval for everybody, and
// compares them with the last reading. It does nothing in between.
type Sampler struct {
	Config
	mu sync.Mutex
	readings
	forget *time.Timer
}

// readings is what a Sampler keeps while somebody asks.
type readings struct {
	byKey     meter[service.Key]
	byBackend meter[backendKey]
	drops     meter[Cause]
	index     *index
	// rates are those of the index between the readings of byKey, if they are measured.
	rates    []Rate
	measured bool
	total    Rate
	fault    error
	// busy is the CPU time since the last reading, cost that between the last two.
	busy, cost time.Duration
}

// New returns a Sampler.
func New(c Config) *Sampler { return &Sampler{Config: c} }

// ServeHTTP answers GET Path with a Report.
func (s *Sampler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q, err := ParseQuery(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	body, err := s.answer(q)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(body); err != nil {
		slog.Debug("rates: client disconnected", "error", err)
	}
}

// answer returns a Report as JSON, and records the CPU time that both take.
func (s *Sampler) answer(q Query) ([]byte, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := cpuTime()
	r := s.Report(q, time.Now())
	body, err := json.Marshal(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy += cpuTime() - began
	return body, err
}

// Report answers a Query at a given time.
func (s *Sampler) Report(q Query, now time.Time) Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forget == nil {
		s.forget = time.AfterFunc(idle, s.release)
	}
	s.forget.Reset(idle)
	agent := s.Status()
	s.sample(agent, q, now)
	snap := s.look(agent)
	r := Report{Node: agent.Node, View: q.View, Sort: q.Sort, Time: s.byKey.after, Seconds: s.byKey.seconds(), Total: s.total, Drops: s.dropped()}
	if q.View == Backends {
		r.Time, r.Seconds = s.byBackend.after, s.byBackend.seconds()
	}
	if s.fault != nil {
		r.Error = "reading counters: " + s.fault.Error()
	}
	view := snap.view(q)
	r.Rows, r.Matching = view.pick(q)
	r.All = view.n
	next := s.pause(q)
	if !s.byKey.after.IsZero() { // otherwise the reading has failed
		next -= now.Sub(s.byKey.after)
	}
	r.Next = max(next, 0).Seconds()
	return r
}

// pause is the time between two readings.
func (s *Sampler) pause(q Query) time.Duration { return max(q.Interval, share*s.busy, share*s.cost) }

// sample reads the counters that a query needs, if it is time.
func (s *Sampler) sample(agent status.Agent, q Query, now time.Time) {
	pause := s.pause(q)
	due := func(last time.Time) bool { return now.Sub(last) >= pause*9/10 } // a client's clock is not exact
	oldest := now.Add(-pause - lapse)
	if due(s.byKey.after) {
		s.cost, s.busy, s.measured = s.busy, 0, false
		s.fault = errors.Join(
			s.byKey.read(now, oldest, func(add func(service.Key, dataplane.Counts)) error { return frontends(agent.DataPlane, add) }),
			s.drops.read(now, oldest, s.causes),
		)
	}
	if q.View == Backends && due(s.byBackend.after) {
		s.fault = errors.Join(s.fault, s.byBackend.read(now, oldest, func(add func(backendKey, dataplane.Counts)) error { return backends(agent.DataPlane, add) }))
	}
}

func frontends(d dataplane.DataPlane, add func(service.Key, dataplane.Counts)) error {
	if d == nil {
		return nil
	}
	return dataplane.SampleFrontends(d, add)
}

func backends(d dataplane.DataPlane, add func(backendKey, dataplane.Counts)) error {
	if d == nil {
		return nil
	}
	return dataplane.SampleBackends(d, func(k service.Key, a netip.AddrPort, c dataplane.Counts) {
		add(backendKey{key: k, addr: a}, c)
		if k != (service.Key{}) {
			add(backendKey{addr: a, sum: true}, c)
		}
	})
}

func (s *Sampler) causes(add func(Cause, dataplane.Counts)) error {
	if s.Dropped == nil {
		return nil
	}
	all, err := s.Dropped()
	for cause, n := range all {
		add(cause, dataplane.Counts{Packets: n})
	}
	return err
}

// look computes the rates of the current view, unless they are known.
func (s *Sampler) look(agent status.Agent) *snapshot {
	view := &reconciler.View{Plan: &plan.Plan{}}
	if agent.View != nil {
		view = agent.View()
	}
	if s.index == nil || s.index.view != view {
		s.index, s.measured = newIndex(agent, view), false
	}
	snap := &snapshot{agent: agent, index: s.index, byKey: &s.byKey, byBackend: &s.byBackend, rates: s.rates}
	if !s.measured {
		s.total, s.measured = snap.measure(), true
		s.rates = snap.rates
	}
	return snap
}

// dropped lists the reasons for which packets were dropped.
func (s *Sampler) dropped() []Drop {
	all := []Drop{}
	for cause := range s.drops.at {
		if rate, c := s.drops.of(cause); c.Packets > 0 {
			all = append(all, Drop{At: cause.At, Reason: cause.Reason, PerSecond: rate.Packets, Total: c.Packets})
		}
	}
	slices.SortFunc(all, func(a, b Drop) int {
		return cmp.Or(cmp.Compare(b.PerSecond, a.PerSecond), cmp.Compare(b.Total, a.Total), cmp.Compare(a.At, b.At), cmp.Compare(a.Reason, b.Reason))
	})
	return all
}

// release forgets everything: nobody asks any more.
func (s *Sampler) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readings = readings{}
}

// cpuTime returns the CPU time of the calling thread.
func cpuTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
