package keyed

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var (
	start    = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	errFault = errors.New("no answer")
	errNo    = errors.New("not possible")
)

func isNo(err error) bool { return errors.Is(err, errNo) }

func TestBackoff(t *testing.T) {
	var got []time.Duration
	for tries := range 9 {
		got = append(got, Backoff(tries+1))
	}
	ms := time.Millisecond
	want := []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 6400 * ms, Last, Last}
	if !slices.Equal(got, want) || Backoff(1<<40) != Last {
		t.Errorf("pauses %v, want %v", got, want)
	}
}

// TestOneKey follows one key through its phases.
func TestOneKey(t *testing.T) {
	now := start
	k := &Tracker[string, struct{}]{IsRejection: isNo, RetryRejected: true}
	expect := func(what string, phase Phase, tries int, due time.Duration) {
		t.Helper()
		if s := k.State("a"); s.Phase != phase || s.Tries != tries || due > 0 && !s.Due.Equal(now.Add(due)) {
			t.Errorf("%s: %+v", what, s)
		}
	}
	take := func() string {
		keys, all := k.Take(now)
		return fmt.Sprint(keys, all)
	}
	settle := func(err error) { k.Settle([]string{"a"}, false, nil, err, now) }
	if k.Touch("a") || take() != "[] true" {
		t.Error("the first pass is not over everything")
	}
	k.Settle(nil, true, nil, nil, now)
	if k.Touch("a"); take() != "[a] false" || k.Pending() != 1 {
		t.Error("a changed key is not taken, or not pending while it is written")
	}
	settle(errFault)
	expect("after a failure", Failing, 1, First)
	now = now.Add(First)
	if got := take(); got != "[a] false" {
		t.Error("not tried again:", got)
	}
	settle(errFault)
	expect("after another failure", Failing, 2, 2*First)
	if s := k.State("a"); !s.Since.Equal(start) || !errors.Is(s.Err, errFault) {
		t.Errorf("%+v, want the error since %s", s, start)
	}
	if k.Touch("a"); take() != "[a] false" {
		t.Error("a failed key is not tried as soon as its desired value changes")
	}
	settle(errNo)
	expect("after a rejection", Rejected, 1, First)
	if k.Touch("a"); take() != "[a] false" {
		t.Error("a rejected key is not tried as soon as its desired value changes")
	}
	k.Touch("a") // while it is written
	settle(nil)
	expect("changed while it was written", 0, 0, 0)
	if got := take(); got != "[a] false" {
		t.Error("a change while it was written is lost:", got)
	}
	settle(nil)
	if len(k.states)+k.Pending() > 0 || !k.Due().IsZero() {
		t.Error("a key that is as desired has a record")
	}
}

// TestRejectedKeysRest checks that only a changed wish makes a rejected key ready.
func TestRejectedKeysRest(t *testing.T) {
	k := Tracker[string, int]{Same: func(a, b int) bool { return a == b }, IsRejection: isNo}
	k.Set("a", 1, errNo, start)
	if s := k.State("a"); s.Err == nil || !k.Due().IsZero() || k.Ready("a", 1, start.Add(time.Hour)) || !k.Ready("a", 2, start) {
		t.Errorf("%+v, due %s", s, k.Due())
	}
	k.Set("a", 2, errFault, start)
	if k.Ready("a", 2, start) || !k.Ready("a", 2, start.Add(First)) || !k.Ready("b", 2, start) {
		t.Error("a failed key is not ready at its time")
	}
	if k.Drop(func(_ string, want int) bool { return want == 2 }); k.Count(Failing)+k.Count(Rejected) > 0 || !k.Due().IsZero() {
		t.Error("an outdated failure is kept")
	}
}

// TestOneCallForAll checks the results of calls for everything and for several keys.
func TestOneCallForAll(t *testing.T) {
	k := &Tracker[string, struct{}]{IsRejection: isNo, RetryRejected: true}
	settle := func(keys []string, all bool, err error) {
		k.Settle(keys, all, map[string]error{"no": errNo}, err, start)
	}
	_, all := k.Take(start)
	k.TouchAll() // while it is written
	if settle(nil, all, nil); k.IsKnown() || k.Count(Rejected) != 1 {
		t.Error("what changed during the call is taken for known")
	}
	if _, all = k.Take(start); !all {
		t.Error("everything is not written again")
	}
	settle(nil, all, errFault)
	if _, again := k.Take(start); again || k.IsKnown() || !k.Due().Equal(start.Add(First)) {
		t.Errorf("after a failure: again %t, known %t, due %s", again, k.IsKnown(), k.Due())
	}
	if _, all = k.Take(start.Add(First)); !all {
		t.Error("everything is not tried again")
	}
	settle(nil, all, nil)
	for _, name := range []string{"a", "b", "no"} {
		k.Touch(name)
	}
	keys, all := k.Take(start)
	settle(keys, all, errFault)
	if len(keys) != 3 || k.Count(Failing) != 2 || k.State("no").Phase != Rejected {
		t.Errorf("of %q, %d failed, no is %+v", keys, k.Count(Failing), k.State("no"))
	}
}

// TestFailuresShareCalls lets keys fail one millisecond after another: their retries share
// few calls.
func TestFailuresShareCalls(t *testing.T) {
	k, now, calls := &Tracker[int, struct{}]{}, start, 0
	k.Take(now)
	k.Settle(nil, true, nil, nil, now)
	fail := func() {
		keys, all := k.Take(now)
		if k.Settle(keys, all, nil, errFault, now); len(keys) > 0 {
			calls++
		}
	}
	for i := range 1000 {
		k.Touch(i)
		now = now.Add(time.Millisecond)
		fail()
	}
	for calls = 0; now.Before(start.Add(time.Minute)) && calls < 1000; fail() {
		now = k.Due()
	}
	t.Logf("%d calls in a minute", calls)
	if calls > 40 || k.Count(Failing) != 1000 {
		t.Errorf("%d calls in a minute for %d keys", calls, k.Count(Failing))
	}
}

// model is an actual state of which one call in ten fails after it was done in part, and
// the desired state.
type model struct {
	*Tracker[int, int]
	rng           *rand.Rand
	now           time.Time
	rate          float64
	held, desired map[int]int
	changed       map[int]bool
	rejected      int
}

// call writes one key.
func (m *model) call(k int) error {
	want, is := m.desired[k]
	fails := m.rng.Float64() < m.rate
	switch {
	case is && want%10 == m.rejected:
		return errNo
	case fails && m.rng.IntN(2) == 0:
		return errFault
	case is:
		m.held[k] = want
	default:
		delete(m.held, k)
	}
	if fails {
		return errFault
	}
	return nil
}

// change changes what is desired.
func (m *model) change() {
	k := m.rng.IntN(30)
	if delete(m.desired, k); m.rng.IntN(3) > 0 {
		m.desired[k] = m.rng.IntN(100)
	}
	m.changed[k] = true
	m.Touch(k)
}

// pass writes what is due in one call, which fails as a whole or for single keys.
func (m *model) pass(t *testing.T) {
	before := maps.Clone(m.states)
	keys, all := m.Take(m.now)
	for _, k := range keys {
		if s := before[k]; !m.changed[k] && m.now.Before(s.Due.Add(-Backoff(s.Tries)/2)) {
			t.Fatalf("key %d is tried %s early", k, s.Due.Sub(m.now))
		}
	}
	if clear(m.changed); all {
		keys = slices.Collect(maps.Keys(m.desired))
		for k := range m.held {
			if _, is := m.desired[k]; !is {
				keys = append(keys, k)
			}
		}
		keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	}
	errs, err := map[int]error{}, error(nil)
	for _, k := range keys {
		switch one := m.call(k); {
		case isNo(one):
			errs[k] = one
		case one != nil:
			err = one
		}
	}
	m.now = m.now.Add(time.Duration(m.rng.IntN(5)) * time.Millisecond)
	if m.rng.IntN(5) == 0 {
		m.change() // while the call runs
	}
	m.Settle(keys, all, errs, err, m.now)
}

// check compares what the tracker caches with its records.
func (m *model) check(t *testing.T) {
	var counts [Rejected + 1]int
	due := m.whole.Due
	for _, s := range m.states {
		counts[s.Phase]++
		due = Sooner(due, s.Due)
	}
	if counts != m.counts || !due.Equal(m.Due()) {
		t.Fatalf("counts %v, want %v; due %s, want %s", m.counts, counts, m.Due(), due)
	}
}

// TestRandomHistories makes random changes while calls fail. Whenever the calls succeed
// for a while, all keys are as desired except those that are rejected.
func TestRandomHistories(t *testing.T) {
	for seed := range uint64(60) {
		m := &model{
			Tracker: &Tracker[int, int]{IsRejection: isNo, RetryRejected: true}, rng: rand.New(rand.NewPCG(seed, 1)),
			now: start, held: map[int]int{3: 1, 77: 1}, desired: map[int]int{}, changed: map[int]bool{}, rejected: int(seed % 12),
		}
		for range 20 {
			m.rate = 0.1
			for range 50 {
				for range m.rng.IntN(3) {
					m.change()
				}
				if m.rng.IntN(40) == 0 {
					m.held[m.rng.IntN(30)] = -1 // by others
					m.TouchAll()
				}
				m.pass(t)
				m.check(t)
				m.now = m.now.Add(time.Duration(m.rng.IntN(300)) * time.Millisecond)
			}
			m.rate = 0
			for range 3 {
				m.now = m.now.Add(Last)
				m.pass(t)
			}
			m.verify(t)
		}
	}
}

// verify makes the last passes, and compares.
func (m *model) verify(t *testing.T) {
	for m.Pending() > 0 {
		m.pass(t)
	}
	for k, want := range m.desired {
		if s := m.State(k); want%10 == m.rejected && s.Phase == Rejected {
			continue
		}
		if held, is := m.held[k]; !is || held != want {
			t.Fatalf("key %d is %d (%t), want %d; %+v", k, held, is, want, m.states[k])
		}
	}
	for k := range m.held {
		if _, is := m.desired[k]; !is {
			t.Fatalf("key %d is left", k)
		}
	}
	if !m.IsKnown() || m.Count(Failing) > 0 {
		t.Fatalf("known %t, %d failing", m.IsKnown(), m.Count(Failing))
	}
}
