package proxy

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/lab/testkit"
)

func TestFindsTheRootOfAllCgroups(t *testing.T) {
	own := testkit.EnterCgroup(t)
	path, err := findCgroup()
	if err != nil {
		t.Fatal(err)
	}
	root, err := cgroupID(path)
	if err != nil {
		t.Fatal(err)
	}
	if want, err := cgroupID(filepath.Dir(own)); err != nil || root != want {
		t.Errorf("%s has the number %d, the root %d, %v", path, root, want, err)
	}
	if err := checkRoot(own); err == nil {
		t.Error("another cgroup was taken for the root")
	}
}

func TestRefusesWhatIsNoCgroup(t *testing.T) {
	c := config(t)
	c.Cgroup = t.TempDir()
	if d, err := Open(c); err == nil || !strings.Contains(err.Error(), c.Cgroup) {
		t.Errorf("Open: %v", err)
		if err == nil {
			d.Detach()
		}
	}
}
