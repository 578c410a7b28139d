// Package flowstest provides the traffic of lab/flows to tests: what cannot be opened or
// is not answered fails the test, and everything is closed with it.
package flowstest

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/flows"
)

// Answer makes hosts answer with their names at an address.
func Answer(t testing.TB, l *lab.Lab, at netip.AddrPort, hosts ...string) {
	t.Helper()
	for _, h := range hosts {
		c, err := flows.Answer(l.Host(h), at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
	}
}

// Open opens n flows from a host's address.
func Open(t testing.TB, l *lab.Lab, host string, from netip.Addr, to netip.AddrPort, n int) *flows.Flows {
	t.Helper()
	f, err := flows.Open(l.Host(host), from, to, n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// Ask returns who answers each flow; every one must be answered.
func Ask(t testing.TB, f *flows.Flows) []string {
	t.Helper()
	who, err := f.Ask()
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(who, "") {
		t.Fatalf("not all flows were answered: %v", flows.Shares(who))
	}
	return who
}
