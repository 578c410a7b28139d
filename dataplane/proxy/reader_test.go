package proxy

import (
	"errors"
	"net/netip"
	"os"
	"testing"

	"github.com/fairlead/fairlead/core/service"
)

func TestReader(t *testing.T) {
	c := config(t)
	if _, err := OpenReader(c.PinDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("where nothing is pinned: %v", err)
	}
	d := open(t, c)
	web, one, two := key("10.96.0.1:80", service.TCP), netip.MustParseAddrPort("10.0.0.1:8080"), netip.MustParseAddrPort("10.0.0.2:8080")
	apply(t, d, frontend(web, one))
	r, err := OpenReader(c.PinDir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	entries := func() (int, uint64) {
		t.Helper()
		n, sum, err := r.Entries()
		if err != nil {
			t.Fatal(err)
		}
		return n, sum
	}
	n, before := entries()
	writes := d.Writes()
	apply(t, d, frontend(web, one))
	if _, again := entries(); n != 1 || again != before || d.Writes() != writes {
		t.Errorf("the same again: %d entries, sum %x, then %x, %d writes, then %d", n, before, again, writes, d.Writes())
	}

	apply(t, d, frontend(web, one, two))
	h, found, err := r.Get(web)
	if err != nil || !found || len(h.Inside.Targets) != 2 || h.Inside.Targets[1].Addr != two {
		t.Errorf("%+v, %t, %v", h, found, err)
	}
	if _, after := entries(); after == before || d.Writes() != writes+1 {
		t.Errorf("another target: sum %x, then %x, %d writes, then %d", before, after, writes, d.Writes())
	}
	if _, found, err := r.Get(key("10.96.0.2:80", service.TCP)); found || err != nil {
		t.Errorf("what is not programmed: %t, %v", found, err)
	}
}
