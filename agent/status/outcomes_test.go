package status

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/reconciler"
)

func TestOutcomes(t *testing.T) {
	a := scene(t)
	view := *a.View()
	a.View = func() *reconciler.View { return &view }
	var got []string
	for _, o := range a.Outcomes() {
		got = append(got, fmt.Sprintf("%s %s %q %q", o.ID, o.Created.Format(time.TimeOnly), o.NotProgrammed, o.NotAdvertised))
	}
	want := []string{
		`default/double 10:00:00 "Conflict" "Conflict"`,
		`default/empty 10:00:00 "NoEndpoints" "NoEndpoints"`,
		`default/late 10:00:00 "Pending" "Pending"`,
		`default/odd 10:00:00 "Rejected" "Rejected"`,
		`default/six 10:00:00 "" "NoNextHop"`,
		`default/web 09:00:00 "" ""`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// away is an announcer without a session.
type away struct{ peers }

func (away) Peers() []advertise.Peer {
	return []advertise.Peer{{Name: "tor-1", Address: "172.16.9.2", AS: 65021, State: "active"}}
}

// TestOutcomesDependOnPeers: without a session, nothing is advertised. Cluster IPs and
// Services of dedicated load balancers are not reported.
func TestOutcomesDependOnPeers(t *testing.T) {
	a := outcomesOf(1, away{})
	got := a.Outcomes()
	if len(got) != 1 || got[0].NotProgrammed != "" || got[0].NotAdvertised != "NoSession" {
		t.Errorf("%+v", got)
	}
	for _, change := range []func(*plan.Frontend){
		func(f *plan.Frontend) { f.Kind = service.ClusterAddress },
		func(f *plan.Frontend) { f.State = plan.DedicatedElsewhere },
	} {
		a := outcomesOf(1, peers{})
		change(&a.View().Plan.Frontends[0])
		if got := a.Outcomes(); len(got) != 0 {
			t.Errorf("%+v", got)
		}
	}
}

// outcomesOf returns an agent with n Services that are programmed and advertised.
func outcomesOf(n int, announcer advertise.Announcer) Agent {
	a := large(n, 1)
	a.Announcer = announcer
	return a
}

func BenchmarkOutcomes(b *testing.B) {
	a := outcomesOf(10_000, peers{})
	b.ReportAllocs()
	for b.Loop() {
		if n := len(a.Outcomes()); n != 10_000 {
			b.Fatal(n)
		}
	}
}
