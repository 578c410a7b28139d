package cloud

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/core/route"
)

// script is a cloud with scripted answers.
type script struct {
	mu      sync.Mutex
	got     [][]Offer
	fail    error
	refused Refused
	// hold, if not nil, blocks Sync until it is closed.
	hold chan struct{}
}

func (s *script) Name() string { return "script" }

func (s *script) Sync(ctx context.Context, offers []Offer) (Refused, error) {
	s.mu.Lock()
	hold := s.hold
	s.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, offers)
	return s.refused, s.fail
}

func (s *script) set(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

func (s *script) calls() (n int, last []Offer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.got) == 0 {
		return 0, nil
	}
	return len(s.got), s.got[len(s.got)-1]
}

func routes(prefixes ...string) (all []route.Route) {
	for _, p := range prefixes {
		all = append(all, route.Route{Prefix: netip.MustParsePrefix(p), NextHop: netip.MustParseAddr("10.0.0.1")})
	}
	return all
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// A Keeper calls for changes, after a failure with backoff, as late as the cloud
// requests, and periodically.
func TestKeeperIsDue(t *testing.T) { synctest.Test(t, keeperIsDue) }

func keeperIsDue(t *testing.T) {
	s := &script{}
	k := &Keeper{Provider: s, Log: quiet(), Resync: time.Hour}
	one, two := []Offer{{"a", routes("10.1.1.0/24")}}, []Offer{{"a", routes("10.1.2.0/24")}}
	pass := func(of []Offer, state string, calls int) {
		t.Helper()
		got, current := k.Pass(context.Background(), of)
		if n, _ := s.calls(); got.State != state || n != calls || current != reflect.DeepEqual(of, k.tried) {
			t.Errorf("%s after %d calls, want %s after %d", got.State, n, state, calls)
		}
	}
	pass(one, advertise.Established, 1)
	pass(one, advertise.Established, 1)
	pass(two, advertise.Established, 1) // in a second
	k.at = k.at.Add(-changePause)
	pass(two, advertise.Established, 2)
	k.due = time.Now()
	pass(two, advertise.Established, 3)

	s.fail = errors.New("no")
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		k.due = time.Now()
		pass(two, Failing, 4+i)
		pass(two, Failing, 4+i)
		if k.retry != want*time.Second {
			t.Errorf("pause %d is %s", i, k.retry)
		}
	}
	// A change is not delayed by an unrelated failure, unless the cloud is busy.
	k.at = k.at.Add(-changePause)
	pass(one, Failing, 12)
	s.fail = &Busy{7 * time.Second, errors.New("throttled")}
	k.due, k.retry = time.Now(), 0
	pass(one, Failing, 13)
	k.at = k.at.Add(-changePause)
	if pass(two, Failing, 13); k.retry != 7*time.Second {
		t.Errorf("pause is %s", k.retry)
	}
	s.fail, s.refused = nil, Refused{netip.MustParsePrefix("10.1.2.0/24"): "is another's"}
	k.due = time.Now()
	pass(two, Blocked, 14)
	if k.state.LastError != "10.1.2.0/24: is another's" {
		t.Error(k.state.LastError)
	}
}

// An agent that acts for itself: nothing happens before the first Set, then everything is
// offered, and what is withdrawn is gone when that is confirmed, or Close has returned.
func TestAnnouncer(t *testing.T) { synctest.Test(t, announcer) }

func announcer(t *testing.T) {
	s := &script{}
	a := NewAnnouncer("a", Keeper{Provider: s, Log: quiet()})
	if n, _ := s.calls(); n != 0 || a.Peers()[0].State != "waiting" {
		t.Errorf("%d calls before Set, %v", n, a.Peers())
	}
	want := []Offer{{"a", routes("10.1.1.0/24", "10.1.2.0/24")}}
	if err := a.Set(want[0].Routes); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is announced", func() bool { _, last := s.calls(); return reflect.DeepEqual(last, want) })
	eventually(t, "and reported", func() bool { p := a.Peers()[0]; return p.State == advertise.Established && p.Sent == 2 })
	if err := a.Set(routes("10.1.1.0/24")); err != nil {
		t.Fatal(err)
	}
	if w := a.Withdrawing(); len(w) != 1 || w[0].Prefix.String() != "10.1.2.0/24" || w[0].From != "cloud script" || w[0].Reason != "no response yet" {
		t.Errorf("just withdrawn, and waited for is %v", w)
	}
	eventually(t, "it is confirmed", func() bool { return len(a.Withdrawing()) == 0 })
	if _, last := s.calls(); !reflect.DeepEqual(last, []Offer{{"a", routes("10.1.1.0/24")}}) {
		t.Errorf("confirmed, but the cloud has %v", last)
	}
	s.set(func() { s.fail = errors.New("no") })
	if err := a.Set(routes("10.1.1.0/24", "10.1.3.0/24")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a failure is reported", func() bool { p := a.Peers()[0]; return p.State == Failing && p.LastError == "no" })
	s.set(func() { s.fail = nil })
	eventually(t, "and heals", func() bool { return a.Peers()[0].State == advertise.Established })
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if _, last := s.calls(); len(last) != 1 || len(last[0].Routes) != 0 {
		t.Errorf("left at the end: %v", last)
	}
}

// A cloud that does not answer delays an agent only for a limited time.
func TestAnnouncerDoesNotWaitForEver(t *testing.T) { synctest.Test(t, announcerDoesNotWaitForEver) }

func announcerDoesNotWaitForEver(t *testing.T) {
	s := &script{}
	a := NewAnnouncer("a", Keeper{Provider: s, Log: quiet()})
	if err := a.Set(routes("10.1.1.0/24")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is announced", func() bool { n, _ := s.calls(); return n == 1 })
	s.set(func() { s.hold = make(chan struct{}) })
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
}

// Withdrawing lists what a cloud has not confirmed: everything if an earlier process may
// have left something, each prefix that fails, and nothing else.
func TestWithdrawing(t *testing.T) { synctest.Test(t, withdrawing) }

func withdrawing(t *testing.T) {
	s := &script{hold: make(chan struct{})}
	a := NewAnnouncer("a", Keeper{Provider: s, Log: quiet()})
	waits := func(want ...string) {
		t.Helper()
		var got []string
		eventually(t, fmt.Sprint("waits for ", want), func() bool {
			got = nil
			for _, w := range a.Withdrawing() {
				got = append(got, w.Prefix.String()+" "+w.Reason)
			}
			return slices.Equal(got, want)
		})
	}
	began := time.Now()
	if err := a.Set(routes("10.1.1.0/24", "10.1.2.0/24", "10.1.3.0/24")); err != nil {
		t.Fatal(err)
	}
	const left = "routes of an earlier agent are unknown: "
	waits("0.0.0.0/0 "+left+"no response yet", "::/0 "+left+"no response yet")
	s.set(func() { s.fail = errors.New("500"); close(s.hold); s.hold = nil })
	waits("0.0.0.0/0 "+left+"500", "::/0 "+left+"500")
	s.set(func() {
		s.fail = &advertise.RouteError{Prefix: netip.MustParsePrefix("10.9.9.0/24"), Err: errors.New("no right")}
	})
	waits("10.9.9.0/24 10.9.9.0/24: no right") // left by an earlier one
	if w := a.Withdrawing(); !w[0].Since.Equal(began) {
		t.Errorf("waited for since %s, want since %s", w[0].Since, began)
	}
	s.set(func() { s.fail = nil })
	waits()
	s.set(func() { s.fail = errors.New("500") })
	set := func(prefixes ...string) {
		t.Helper()
		if err := a.Set(routes(prefixes...)); err != nil {
			t.Fatal(err)
		}
	}
	set("10.1.3.0/24")
	waits("10.1.1.0/24 500", "10.1.2.0/24 500")
	set("10.1.1.0/24", "10.1.3.0/24") // desired again
	waits("10.1.2.0/24 500")
	set("10.1.3.0/24")
	s.set(func() {
		s.fail = &advertise.RouteError{Prefix: netip.MustParsePrefix("10.1.2.0/24"), Err: errors.New("no right")}
	})
	waits("10.1.2.0/24 10.1.2.0/24: no right")
	s.set(func() { s.fail, s.refused = nil, Refused{netip.MustParsePrefix("10.1.3.0/24"): "is another's"} })
	waits()
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestChoose(t *testing.T) {
	if _, ok := Choose(netip.MustParsePrefix("10.1.1.0/24"), nil); ok {
		t.Error("one of none")
	}
	var hops []Hop
	for i := range 5 {
		hops = append(hops, Hop{fmt.Sprint("node-", i), netip.MustParseAddr(fmt.Sprint("10.0.0.", i+1))})
	}
	count := map[string]int{}
	for i := range 500 {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 32)
		first, _ := Choose(p, hops)
		count[first.Node]++
		for out := range hops {
			rest := append(append([]Hop{}, hops[:out]...), hops[out+1:]...)
			if next, _ := Choose(p, rest); hops[out] != first && next != first {
				t.Errorf("%s moves from %s to %s when %s goes", p, first.Node, next.Node, hops[out].Node)
			}
		}
	}
	for _, h := range hops {
		if n := count[h.Node]; n < 60 || n > 140 {
			t.Errorf("%s has %d of 500", h.Node, n)
		}
	}
}

func TestCarried(t *testing.T) {
	all := routes("10.1.1.0/24", "10.1.2.0/24")
	all[0].MED, all[1].Peers = 7, "router"
	if got := Carried(all); !reflect.DeepEqual(got, routes("10.1.1.0/24")) {
		t.Errorf("%v", got)
	}
}

func TestOwner(t *testing.T) {
	for owner, valid := range map[string]bool{
		"a": true, "fairlead": true, "eu-1": true, strings.Repeat("a", 20): true,
		"": false, "1a": false, "a-": false, "A": false, "a/b": false, strings.Repeat("a", 21): false,
	} {
		if err := CheckOwner(owner); (err == nil) != valid {
			t.Errorf("%q: %v", owner, err)
		}
	}
}

// A cloud that rejects many prefixes, with long messages, does not fill a Lease.
func TestWordsAreBounded(t *testing.T) {
	r := Refused{}
	for i := range 1000 {
		r.Refuse(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24), "%s", strings.Repeat("no ", 1000))
	}
	words := r.Words()
	if len(words) > maxWords+100 || !strings.HasPrefix(words, "10.0.0.0/24: no no ") || !strings.HasSuffix(words, " more") {
		t.Errorf("%d bytes: %.100s ... %s", len(words), words, words[max(0, len(words)-50):])
	}
	few := Refused{}
	few.Refuse(netip.MustParsePrefix("10.1.0.0/16"), "taken")
	if got := few.Words(); got != "10.1.0.0/16: taken" {
		t.Error(got)
	}
}
