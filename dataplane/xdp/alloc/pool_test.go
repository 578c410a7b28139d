package alloc

import (
	"strings"
	"testing"
)

func TestNumbersAreGivenBack(t *testing.T) {
	var p Pool
	roused := 0
	p = NewPool("things", 1, 4, func() error { roused++; p.Wake(); return nil })
	take := func(want uint32) {
		t.Helper()
		if got, err := p.Take(); err != nil || got != want {
			t.Errorf("took %d, %v; want %d", got, err, want)
		}
	}
	p.Mark(2)
	take(1)
	take(3)
	if _, err := p.Take(); err == nil || !strings.Contains(err.Error(), "3 things") || roused != 0 {
		t.Errorf("a fourth: %v, roused %d times", err, roused)
	}
	p.GiveBack(3)
	p.GiveBack(2)
	if used, size := p.Used(); used != 3 || size != 3 {
		t.Errorf("%d of %d numbers are in use, want all, because released ones rest", used, size)
	}
	take(2) // it must wait only now
	if roused != 1 {
		t.Errorf("roused %d times", roused)
	}
	p.GiveBack(1)
	take(3)
	take(1)
	if roused != 2 {
		t.Errorf("roused %d times", roused)
	}
}
