// Package version reports the running Fairlead and kernel versions. Nothing is decided by
// them: kernel features are probed.
package version

import (
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// stamped is set by the linker (-X) in builds made with make.
var stamped string

// String returns the version of this binary: the one stamped by make, else the module
// version, else the commit, else "devel".
func String() string {
	if stamped != "" {
		return stamped
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	return fromBuild(info)
}

func fromBuild(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	revision, dirty := "", ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case "vcs.modified":
			if s.Value == "true" {
				dirty = "-dirty"
			}
		}
	}
	if revision == "" {
		return "devel"
	}
	return revision + dirty
}

// Kernel returns the running kernel as uname -sr does: "Linux 6.12.48".
func Kernel() string {
	u, ok := uname()
	if !ok {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
}

// Release returns the kernel release as uname -r does: "6.12.48".
func Release() string {
	u, ok := uname()
	if !ok {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}

func uname() (u unix.Utsname, ok bool) {
	err := unix.Uname(&u)
	return u, err == nil
}
