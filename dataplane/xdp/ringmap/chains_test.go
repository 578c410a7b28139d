package ringmap

import (
	"slices"
	"testing"
)

func TestChainsAreSharedAndGivenBack(t *testing.T) {
	var c chainTable
	c = newChainTable(2, func() error { c.numbers.Wake(); return nil })
	var fresh []uint32
	take := func(owners chainOwners) uint32 { return c.take(owners, &fresh) }
	a, b, ab := chainOwners{7}, chainOwners{8}, chainOwners{7, 8}
	one := take(a)
	if again := take(a); one == 0 || again != one || c.of(one) != a {
		t.Fatalf("the same chain is %d and %d: %v", one, again, c.of(one))
	}
	two := take(ab)
	if two == 0 || two == one || c.lacking != 0 {
		t.Fatalf("another chain is %d, the first %d; %d lack", two, one, c.lacking)
	}
	if n := take(b); n != 0 || c.lacking != 1 {
		t.Errorf("beyond the table: %d, %d lack", n, c.lacking)
	}
	if n := take(chainOwners{7, 9}); n != one || c.lacking != 2 {
		t.Errorf("beyond the table, with a shorter one there: %d, want %d; %d lack", n, one, c.lacking)
	}
	c.release(two)
	if c.of(two) != (chainOwners{}) {
		t.Errorf("nobody names it, but it is %v", c.of(two))
	}
	if n := take(b); n != two || c.of(n) != b {
		t.Errorf("a number that rested: %d, want %d; %v", n, two, c.of(n))
	}
	if !slices.Equal(fresh, []uint32{one, two, two}) {
		t.Errorf("to be written: %v", fresh)
	}
	c.release(0)
	c.release(99)
}
