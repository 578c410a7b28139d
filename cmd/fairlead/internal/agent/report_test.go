package agent

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/source/kube"
)

func TestReports(t *testing.T) {
	one, two := route.Route{Prefix: netip.MustParsePrefix("10.1.1.1/32")}, route.Route{Prefix: netip.MustParsePrefix("10.1.1.2/32")}
	got := reports([]advertise.Peer{
		{Name: "tor-1", State: advertise.Established, LastError: "an old one"}, {Name: "tor-2", State: "connect", LastError: "connection refused"},
		{Name: "tor-3", State: "idle"}, {Name: "10.0.0.3", Address: "10.0.0.3"}, {Name: "x", Unconfigured: true},
	}, map[string]bool{"10.0.0.3": true}, &plan.Plan{Routes: []plan.Route{{Route: one, By: []string{"all", "web"}}, {Route: two, By: []string{"all"}}, {Route: two}}}, map[route.Route]time.Time{one: {}})
	want := map[kube.Reported]kube.Report{
		{Kind: "BGPPeer", Name: "tor-1"}:     {Ready: true, Message: "established"},
		{Kind: "BGPPeer", Name: "tor-2"}:     {Message: "not established: connection refused"},
		{Kind: "BGPPeer", Name: "tor-3"}:     {Message: "not established"},
		{Kind: "Advertisement", Name: "all"}: {Message: "1 of 2 prefixes are advertised"},
		{Kind: "Advertisement", Name: "web"}: {Ready: true, Message: "1 of 1 prefixes are advertised"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
