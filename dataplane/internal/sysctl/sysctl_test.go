package sysctl_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane/internal/sysctl"
	"github.com/fairlead/fairlead/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestReadOnly(t *testing.T) {
	root := t.TempDir()
	err := errors.Join(
		os.WriteFile(filepath.Join(root, "on"), []byte("1\n"), 0o600),
		os.WriteFile(filepath.Join(root, "off"), []byte("0\n"), 0o600),
		unix.Mount(root, root, "", unix.MS_BIND, ""),
		unix.Mount("", root, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(root, unix.MNT_DETACH)
	if err := (sysctl.Setting{Path: "on", Value: "1", Why: "it must"}).Set(root); err != nil {
		t.Errorf("one that is right already: %v", err)
	}
	err = sysctl.Setting{Path: "off", Value: "1", Why: "it must"}.Set(root)
	if !errors.Is(err, unix.EROFS) || !strings.Contains(err.Error(), "net.off is 0") || !strings.Contains(err.Error(), "because it must") {
		t.Errorf("one that is not: %v", err)
	}
	if err := (sysctl.Setting{Path: "ipv6/conf/all/forwarding", Value: "1", Why: "it must"}).Set(root); err != nil {
		t.Errorf("no IPv6: %v", err)
	}
	if err := (sysctl.Setting{Path: "ipv4/conf/eth9/accept_local", Value: "1", Why: "it must"}).Set(root); err == nil {
		t.Error("no such interface: no error")
	}
}
