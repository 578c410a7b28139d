package router

import (
	"testing"

	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/lab/testkit/refusals"
)

// TestWithoutOptional installs routes on kernels without optional features.
func TestWithoutOptional(t *testing.T) {
	refusals.Optional(t, features.Router, refusals.Tests{Few: "^TestDegraded$", All: "^TestDegraded$"})
}

// TestDegraded installs a route, over a plain group if resilient ones are rejected, and
// checks what is reported.
func TestDegraded(t *testing.T) {
	l := nodes(t)
	table := open(t, l)
	defer table.Close(true)
	mustSet(t, table, "10.1.1.0/24 10.0.0.105 10.0.0.106")
	refused := refusals.Without(features.ResilientGroups)
	rs, err := table.List()
	if err != nil || len(rs) != 1 || rs[0].Resilient == refused || len(rs[0].Hops) != 2 {
		t.Errorf("routes: %+v, %v", rs, err)
	}
	if d := table.Degraded(); len(d) == 1 != refused || refused && d[0].Feature != features.ResilientGroups {
		t.Errorf("degraded: %v", d)
	}
}

// TestWithoutEssential has the kernel reject next-hop objects: existing routes must stay.
func TestWithoutEssential(t *testing.T) {
	if refusals.Attempt(func(at string) error {
		return refusals.InNamespace(at, func() error {
			table, err := New(Config{FirstID: 700000})
			if err != nil {
				return err
			}
			defer table.Close(false)
			return table.Set(set("10.7.0.0/16 10.0.0.107"))
		})
	}) {
		return
	}
	l := nodes(t)
	table := open(t, l)
	defer table.Close(true)
	mustSet(t, table, "10.1.1.0/24 10.0.0.105 10.0.0.106")
	refusals.Essential(t, features.Router, l.Host("router").Namespace().Path(), func(t *testing.T) {
		if rs, err := table.List(); err != nil || len(rs) != 1 || len(rs[0].Hops) != 2 {
			t.Errorf("routes: %+v, %v", rs, err)
		}
	})
}
