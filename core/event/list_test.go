package event_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/event"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// at returns an event a number of seconds after the start.
func at(seconds int, of event.Type, name, cause string) event.Event {
	return event.Event{Type: of, Time: start.Add(time.Duration(seconds) * time.Second), Object: event.Object{Kind: "BGPPeer", Name: name}, Cause: cause}
}

// shown returns one line for each event.
func shown(l *event.List, q event.Query) (lines []string) {
	for _, e := range l.All(q) {
		lines = append(lines, fmt.Sprintf("%d %s %s x%d %s: %s", int(e.Last.Sub(start).Seconds()), e.Type, e.Object, e.Count, e.Severity, e.Cause))
	}
	return lines
}

func TestRepeatsAreJoined(t *testing.T) {
	var l event.List
	for i := range 20 {
		l.Add(at(i, event.PeerDown, "tor-1", fmt.Sprintf("nothing received for %dms", 900+i)))
		l.Add(at(i, event.PeerEstablished, "tor-1", ""))
	}
	l.Add(at(20, event.PeerDown, "tor-1", "connection refused"))
	l.Add(at(2000, event.PeerEstablished, "tor-1", ""))
	want := []string{
		"19 PeerDown BGPPeer tor-1 x20 Warning: nothing received for 919ms",
		"19 PeerEstablished BGPPeer tor-1 x20 Normal: ",
		"20 PeerDown BGPPeer tor-1 x1 Warning: connection refused",
		"2000 PeerEstablished BGPPeer tor-1 x1 Normal: ",
	}
	if got := shown(&l, event.Query{}); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestManyAtOnce changes 10,000 backends at once: the others stay listed, and what is too much
// is counted.
func TestManyAtOnce(t *testing.T) {
	var l event.List
	l.Add(at(0, event.PeerDown, "tor-1", "cut"))
	for i := range 10000 {
		l.Add(event.Event{Type: event.BackendUnhealthy, Time: start, Object: event.Object{Kind: "Backend", Name: fmt.Sprintf("10.0.%d.%d:80", i/256, i%256)}})
	}
	if l.Len() != 202 {
		t.Errorf("%d events, want 200 backends, one that counts and the peer", l.Len())
	}
	all := l.All(event.Query{Types: []event.Type{event.BackendUnhealthy}})
	if last := all[len(all)-1]; last.Count != 9800 || last.Object.String() != "Backend" || !strings.HasPrefix(last.Cause, "more than 200 ") {
		t.Errorf("the last one is %+v", last)
	}
}

// TestBounds adds random events: the limits hold, and a type that never stops does not
// displace another.
func TestBounds(t *testing.T) {
	l := event.List{MaxEvents: 100, MaxBytes: 50_000}
	l.Add(at(0, event.DrainStarted, "n1", "by command"))
	random := rand.New(rand.NewPCG(1, 2))
	types := []event.Type{event.RouteAdvertised, event.PeerDown, event.BackendUnhealthy}
	for i := range 20000 {
		l.Add(at(i, types[random.IntN(len(types))], fmt.Sprint(random.IntN(1000)), strings.Repeat("x", random.IntN(2000))))
		if l.Len() > 100 || l.Bytes() > 50_000 {
			t.Fatalf("%d events, %d bytes", l.Len(), l.Bytes())
		}
	}
	if got := shown(&l, event.Query{})[0]; got != "0 DrainStarted BGPPeer n1 x1 Normal: by command" {
		t.Errorf("the oldest is %s", got)
	}
	if l.Len() < 50 {
		t.Errorf("only %d events", l.Len())
	}
	for _, e := range l.All(event.Query{}) {
		if len(e.Cause) > 520 {
			t.Errorf("a cause has %d bytes", len(e.Cause))
		}
	}
}

func TestQuery(t *testing.T) {
	var l event.List
	l.Add(event.Event{Type: event.ConfigRejected, Time: start, Object: event.Object{Kind: "Service", Namespace: "shop", Name: "web"}, Cause: "a"})
	l.Add(event.Event{Type: event.BackendUnhealthy, Time: start.Add(time.Minute), Object: event.Object{Kind: "Backend", Name: "10.0.0.1:80"}, Services: []string{"shop/web", "shop/api"}, Cause: "b"})
	l.Add(at(120, event.PeerDown, "tor-1", "c"))
	for _, c := range []struct {
		q    event.Query
		want string
	}{
		{event.Query{}, "abc"},
		{event.Query{Service: "shop/web"}, "ab"},
		{event.Query{Service: "web"}, "ab"},
		{event.Query{Service: "eb"}, ""},
		{event.Query{Service: "shop/api"}, "b"},
		{event.Query{Since: start.Add(time.Minute)}, "bc"},
		{event.Query{Types: []event.Type{event.PeerDown, event.ConfigRejected}}, "ac"},
		{event.Query{Limit: 2}, "bc"},
		{event.Query{Limit: 9}, "abc"},
	} {
		got := ""
		for _, e := range l.All(c.q) {
			got += e.Cause
		}
		if got != c.want {
			t.Errorf("%+v selects %q, want %q", c.q, got, c.want)
		}
	}
}

// TestRestore continues after a restart: IDs increase, and repeats are joined.
func TestRestore(t *testing.T) {
	var before, after event.List
	before.Add(at(0, event.PeerDown, "tor-1", "cut"))
	first := before.All(event.Query{})[0]
	again := before.Add(at(10, event.PeerDown, "tor-1", "cut"))
	before.Add(at(20, event.PeerDown, "tor-2", "cut"))
	after.Restore(first)
	for _, e := range before.All(event.Query{}) {
		after.Restore(e)
	}
	after.Restore(again)
	if got := after.Add(at(30, event.PeerDown, "tor-1", "cut")); got.ID != again.ID || got.Count != 3 {
		t.Errorf("repeat %+v", got)
	}
	if got := after.Add(at(30, event.PeerDown, "tor-3", "cut")); got.ID != 3 || after.Len() != 3 {
		t.Errorf("new %+v of %d", got, after.Len())
	}
}

func TestObject(t *testing.T) {
	for text, want := range map[string]event.Object{
		"Service shop/web":      {Kind: "Service", Namespace: "shop", Name: "web"},
		"Node n1":               {Kind: "Node", Name: "n1"},
		"BGPPeer rack":          {Kind: "BGPPeer", Name: "rack"},
		"layer 2, 10.1.1.1/32":  {Name: "layer 2, 10.1.1.1/32"},
		"state directory /run":  {Name: "state directory /run"},
		"Route 10.1.1.0/24":     {Kind: "Route", Name: "10.1.1.0/24"},
		"process":               {Name: "process"},
		"":                      {},
		"EndpointSlice a/web-1": {Kind: "EndpointSlice", Namespace: "a", Name: "web-1"},
	} {
		if got := event.ParseObject(text); got != want || got.String() != text {
			t.Errorf("%q is %+v (%s), want %+v", text, got, got, want)
		}
	}
}

// TestTypes checks that the names are valid reasons of Kubernetes Events, each described once.
func TestTypes(t *testing.T) {
	seen := map[event.Type]bool{}
	for _, d := range event.Types {
		if seen[d.Type] || d.Meaning == "" || d.Kind == "" || d.Severity == "" || strings.ContainsAny(string(d.Type), " .-_") {
			t.Errorf("%+v", d)
		}
		seen[d.Type] = true
	}
}

func BenchmarkAdd(b *testing.B) {
	var l event.List
	for i := 0; b.Loop(); i++ {
		l.Add(at(i, event.RouteAdvertised, fmt.Sprint(i%10000), "no frontend is programmed"))
	}
}
