package status

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/reconciler"
)

// waiting is an agent that waits for a cloud to confirm two withdrawals: of a Service
// whose backends are all down, and of one that was deleted.
func waiting(drain plan.Drain) Agent {
	a := announcing(drain, advertise.Peer{AS: 65021, Name: "tor-1", Address: "10.0.0.1", State: advertise.Established})
	v := *a.View()
	cloud := func(prefix string, since time.Time) advertise.Withdrawal {
		return advertise.Withdrawal{Prefix: netip.MustParsePrefix(prefix), From: "cloud webhook", Since: since, Reason: "HTTP 500"}
	}
	v.Withdrawing = []advertise.Withdrawal{cloud("10.1.1.2/32", ago(time.Minute)), cloud("10.1.9.0/24", ago(time.Second))}
	key := func(vip string) service.Key {
		return service.Key{VIP: netip.MustParseAddr(vip), Port: 80, Protocol: service.TCP}
	}
	v.Leaving = map[service.Key]reconciler.Leaving{
		key("10.1.1.2"): {Since: ago(time.Minute), Waits: v.Withdrawing[:1]},
		key("10.1.9.1"): {Since: ago(time.Second), Waits: v.Withdrawing[1:]},
		key("10.1.8.1"): {Since: ago(time.Second)},
	}
	a.View = func() *reconciler.View { return &v }
	return a
}

// TestWithdrawingIsShown checks that pending confirmations, with their start times,
// appear in the overview, among the routes and problems, in explain, in the drain state
// and in JSON.
func TestWithdrawingIsShown(t *testing.T) {
	const old = "waiting for withdrawal from cloud webhook since 2026-03-01T10:59:00Z (HTTP 500)"
	const young = "waiting for withdrawal from cloud webhook since 2026-03-01T10:59:59Z (HTTP 500)"
	s := waiting(plan.Drain{}).Gather(eleven)
	shown := func(v View, f Format) string {
		t.Helper()
		var b bytes.Buffer
		if err := Write(&b, v, f); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	down, err := s.Only("down")
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct{ text, want string }{
		"overview": {shown(s.Overview(), Table), "withdrawing 2 routes, 3 frontends still programmed; 10.1.1.2/32: " + old + "\n"},
		"problem":  {shown(s.Overview(), Table), "            route 10.1.1.2/32: its frontends stay programmed: " + old + "\n"},
		"route":    {shown(s.RoutesView(), Table), "10.1.9.0/24 - no - - " + young + "\n"},
		"explain":  {shown(down.ExplainServiceView(), Table), "panic mode is disabled; " + old + "\n"},
		"held":     {shown(s.Overview(), JSON), `"reason": "packets may still be on their way (--withdraw-grace-period)"`},
	} {
		if !strings.Contains(strings.Join(strings.Fields(c.text), " "), strings.Join(strings.Fields(c.want), " ")) {
			t.Errorf("%s: %q is not in\n%s", what, c.want, c.text)
		}
	}
	if text := shown(s.Overview(), Table); strings.Contains(text, "route 10.1.9.0/24: its frontends") {
		t.Errorf("what has just been withdrawn is a problem:\n%s", text)
	}
	drain := plan.Drain{Stage: plan.Withdrawn, Why: []string{"by command"}}
	const words = "waiting for confirmation that the routes are withdrawn (2 routes, 3 frontends still programmed; 10.1.1.2/32: " + old + "): by command"
	if got := waiting(drain).Gather(eleven).DrainWords(); !strings.HasSuffix(got, words) {
		t.Errorf("drain: %s", got)
	}
}
