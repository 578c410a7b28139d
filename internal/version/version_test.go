package version

import (
	"os"
	"runtime/debug"
	"strings"
	"testing"
)

func TestFromBuild(t *testing.T) {
	commit := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef0123"}
	dirty := debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	for _, c := range []struct {
		name string
		info debug.BuildInfo
		want string
	}{
		{"go install", debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, "v1.2.3"},
		{"commit", debug.BuildInfo{Settings: []debug.BuildSetting{commit}}, "0123456789ab"},
		{"dirty", debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: []debug.BuildSetting{commit, dirty}}, "0123456789ab-dirty"},
		{"nothing known", debug.BuildInfo{}, "devel"},
	} {
		if got := fromBuild(&c.info); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestKernelIsTheRunningOne(t *testing.T) {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	if want := "Linux " + strings.TrimSpace(string(release)); Kernel() != want {
		t.Errorf("%q, want %q", Kernel(), want)
	}
}
