package journal

import (
	"fmt"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/core/event"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/internal/features"
)

// TestWatch compares what lasts. Each step is what is seen, and what is recorded for it.
func TestWatch(t *testing.T) {
	port := problem.Problem{Object: "Service shop/web", Where: "shop.yaml:12", Field: "spec.ports[0].port", Message: "80000 is out of range"}
	other := port
	other.Message = "no name"
	noObject := problem.Problem{Where: "broken.yaml:3", Message: "not YAML"}
	failure := problem.Failed("layer 2", "no such member")
	degraded := []features.Degraded{{Feature: "tcx", Component: features.Balancer, Message: "EINVAL", Lost: "slower"}}
	rejected := "ConfigRejected Service shop/web/spec.ports[0].port: shop.yaml:12: 80000 is out of range"
	resolved := "ConfigResolved Service shop/web/spec.ports[0].port: was: shop.yaml:12: 80000 is out of range"
	var past []event.Event
	w := NewWatch("n1", past)
	for i, step := range []struct {
		seen    Seen
		restart bool
		want    []string
	}{
		{seen: Seen{Loaded: true}},
		{seen: Seen{Problems: []problem.Problem{port, noObject}, Loaded: true}, want: []string{"ConfigRejected File broken.yaml/: broken.yaml:3: not YAML", rejected}},
		{seen: Seen{Problems: []problem.Problem{port, noObject}, Loaded: true}},
		{seen: Seen{Problems: []problem.Problem{port, noObject}, Loaded: true}, restart: true},
		{seen: Seen{}, restart: true}, // before the Services are read
		{seen: Seen{Problems: []problem.Problem{port, other}, Loaded: true}, want: []string{
			"ConfigResolved File broken.yaml/: was: broken.yaml:3: not YAML", rejected + "; shop.yaml:12: no name"}},
		{seen: Seen{Problems: []problem.Problem{port}, Loaded: true}, want: []string{rejected}},
		{seen: Seen{Loaded: true}, restart: true, want: []string{resolved}},
		{seen: Seen{Problems: []problem.Problem{failure}, Loaded: true, Degraded: degraded}, want: []string{
			"ReconcileFailed layer 2/: no such member", "Degraded Node n1/balancer/tcx: tcx (balancer): slower; EINVAL"}},
		{seen: Seen{Loaded: true, Degraded: degraded}, restart: true},
		{seen: Seen{Loaded: true, Tables: []dataplane.Table{{Name: "flows", Used: 79, Size: 100}, {Name: "empty"}}}, want: []string{
			"FeatureRestored Node n1/balancer/tcx: was: tcx (balancer): slower; EINVAL"}},
		{seen: Seen{Loaded: true, Tables: []dataplane.Table{{Name: "flows", Used: 80, Size: 100}}}, want: []string{"TableFilling Node n1/flows: 80 of 100 entries are used"}},
		{seen: Seen{Loaded: true, Tables: []dataplane.Table{{Name: "flows", Used: 75, Size: 100}}}, restart: true},
		{seen: Seen{Loaded: true, Tables: []dataplane.Table{{Name: "flows", Used: 69, Size: 100}}}, want: []string{"TableRelieved Node n1/flows: 69 of 100 entries are used"}},
	} {
		if step.restart {
			w = NewWatch("n1", past)
		}
		var got []string
		for _, e := range w.Look(step.seen) {
			past = append(past, e)
			got = append(got, fmt.Sprintf("%s %s/%s: %s", e.Type, e.Object, e.Field, e.Cause))
		}
		if !slices.Equal(got, step.want) {
			t.Errorf("step %d: got  %q\nwant %q", i, got, step.want)
		}
	}
}
