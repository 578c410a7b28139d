package xdp

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/core/service"
)

func TestChainsAreSharedAndGivenBack(t *testing.T) {
	var c chainTable
	c = newChainTable(2, func() error { c.numbers.wake(); return nil })
	a, b, ab := chainOwners{7}, chainOwners{8}, chainOwners{7, 8}
	one := c.take(a)
	if again := c.take(a); one == 0 || again != one || c.of(one) != a {
		t.Fatalf("the same chain is %d and %d: %v", one, again, c.of(one))
	}
	two := c.take(ab)
	if two == 0 || two == one || c.lacking != 0 {
		t.Fatalf("another chain is %d, the first %d; %d lack", two, one, c.lacking)
	}
	if n := c.take(b); n != 0 || c.lacking != 1 {
		t.Errorf("beyond the table: %d, %d lack", n, c.lacking)
	}
	if n := c.take(chainOwners{7, 9}); n != one || c.lacking != 2 {
		t.Errorf("beyond the table, with a shorter one there: %d, want %d; %d lack", n, one, c.lacking)
	}
	c.release(two)
	if c.of(two) != (chainOwners{}) {
		t.Errorf("nobody names it, but it is %v", c.of(two))
	}
	if n := c.take(b); n != two || c.of(n) != b {
		t.Errorf("a number that rested: %d, want %d; %v", n, two, c.of(n))
	}
	c.release(0)
	c.release(99)
}

// With a table that is too small, new flows continue, old ones may break, and a warning
// reports it.
func TestTooFewChains(t *testing.T) {
	n := newNet(t)
	c := config()
	c.MaxChains = 1
	d := n.open(t, c)
	f := frontend(service.Tunnel, vips[false], service.TCP, "172.16.5.1:80", "172.16.5.2:80", "172.16.5.3:80")
	upsert(t, d, f)
	if w := d.Describe().Warnings; len(w) != 0 {
		t.Fatalf("warns too early: %q", w)
	}
	f.Backends[0].Weight, f.Backends[1].Weight = 0, 0
	upsert(t, d, f)
	slots, chained := d.readRing(d.programmed[f.Key], nil), 0
	for i, s := range slots {
		if s.First != d.programmed[f.Key].members[2].id {
			t.Fatalf("slot %d: %+v", i, s)
		}
		if s.Older[0] != 0 {
			chained++
		}
	}
	if chained == 0 || chained == len(slots) {
		t.Errorf("%d of %d slots have a chain", chained, len(slots))
	}
	if w := d.Describe().Warnings; len(w) != 1 || !strings.Contains(w[0], "MaxChains") {
		t.Errorf("warns %q", w)
	}
}
