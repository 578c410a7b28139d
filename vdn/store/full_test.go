package store

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/vdn"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestFullDisk checks that a change that does not fit has no effect, that the state stays,
// and that with free space the store works again, as does a store opened since.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=128k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s := open(t, dir)
	must(t, s, network("a", "10.1.0.0/16"))
	has := map[string]netip.Prefix{}
	fill := func(name string, most int) (err error) {
		for i := 0; i < most && err == nil; i++ {
			var l vdn.Lease
			if l, _, err = s.Attach(t.Context(), request("a", fmt.Sprint(name, i)), 1); err == nil {
				has[l.Attachment.ID] = l.Attachment.Addresses[0]
			}
		}
		return err
	}
	compare := func(when string) {
		t.Helper()
		got := map[string]netip.Prefix{}
		for _, a := range s.Attachments("", "") {
			got[a.ID] = a.Addresses[0]
		}
		if !maps.Equal(has, got) {
			t.Errorf("%s there are %d of %d attachments", when, len(got), len(has))
		}
	}
	for range 3 { // repeated, because the disk stays full
		if err := fill("c", 10000); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("got %v, want no space", err)
		}
	}
	if len(has) < 100 || s.Err() != nil {
		t.Errorf("%d attachments fit, the store is %v", len(has), s.Err())
	}
	compare("on a full disk")
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT, "size=16m"); err != nil {
		t.Fatal(err)
	}
	if err := fill("d", 100); err != nil {
		t.Fatal(err)
	}
	for _, id := range slices.Sorted(maps.Keys(has))[:50] {
		if err := s.Detach(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		delete(has, id)
	}
	compare("with room")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	compare("opened again")
	if err := fill("e", 10); err != nil {
		t.Error(err)
	}
}
