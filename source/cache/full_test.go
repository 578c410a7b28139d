package cache

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/source"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestFullDisk has no space for the cache: the error names the problem, the previous file
// is intact, no partial file remains, and with free space caching resumes.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	file, now := filepath.Join(dir, "kept"), time.Now()
	few := stateOf(source.Snapshot{Services: []*service.Service{web("web")}}, nil)
	if err := few.writeAt(file, now); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	many := source.Snapshot{}
	for range 200 {
		many.Services = append(many.Services, web(strings.Repeat("w", 60)))
	}
	err = stateOf(many, nil).writeAt(file, now)
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), dir) {
		t.Errorf("error %v, want one that names the file and that there is no room", err)
	}
	if after, err := os.ReadFile(file); err != nil || !bytes.Equal(after, before) {
		t.Errorf("what was kept is lost: %v, %d bytes of %d", err, len(after), len(before))
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
		t.Errorf("files %v, %v", all, err)
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT, "size=4m"); err != nil {
		t.Fatal(err)
	}
	if err := stateOf(many, nil).writeAt(file, now); err != nil {
		t.Error(err)
	}
	if st, err := parse(file); err != nil || len(st.Services) != 200 {
		t.Errorf("%v, %+v", err, st)
	}
}
