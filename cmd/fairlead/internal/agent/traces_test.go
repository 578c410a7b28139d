package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/otlp"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/reconciler"
)

func TestTraceOf(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	failed := errors.New("no room")
	trace := traceOf(reconciler.Change{Learned: at(1), Began: at(3), Ended: at(9), Omitted: 4, Steps: []reconciler.Step{
		{Kind: reconciler.StepPlan, Began: at(3), Ended: at(4)},
		{Kind: reconciler.StepProgram, Began: at(4), Ended: at(7), Err: failed, Service: service.ID{Namespace: "default", Name: "web"},
			Frontend: service.Key{VIP: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: service.TCP}},
		{Kind: reconciler.StepAdvertise, Began: at(7), Ended: at(8), Routes: []route.Route{{Prefix: netip.MustParsePrefix("10.1.1.1/32")}, {Prefix: netip.MustParsePrefix("10.1.1.2/32")}}},
	}})
	if trace.Err != failed || trace.Began != at(1) || trace.Ended != at(9) {
		t.Errorf("%+v", trace)
	}
	var got []string
	for _, s := range append([]otlp.Span{trace}, trace.Children...) {
		line := fmt.Sprintf("%s %d", s.Name, s.Ended.Sub(s.Began).Milliseconds())
		for _, a := range s.Attributes {
			line += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		}
		got = append(got, line)
	}
	const want = "change 8 fairlead.steps.omitted=4; wait 2; plan 1; program 3 fairlead.frontend=TCP 10.1.1.1:80 fairlead.service=default/web; " +
		"advertise 1 fairlead.routes=2 fairlead.prefixes=10.1.1.1/32,10.1.1.2/32"
	if got := strings.Join(got, "; "); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	if trace := traceOf(reconciler.Change{Began: at(3), Ended: at(4)}); trace.Began != at(3) || len(trace.Children) != 0 {
		t.Errorf("without anything from the source: %+v", trace)
	}
}
