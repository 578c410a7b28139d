package fib

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Sysctl is a setting of the kernel that a router needs.
type Sysctl struct {
	Name   string `json:"name"` // with slashes, below net/
	Value  string `json:"value"`
	Reason string `json:"reason"`
}

// hashFields are source and destination address, protocol and both ports, the
// bits 0x37 of fib_multipath_hash_fields (Linux' ip-sysctl.rst), without the
// IPv6 flow label, which a sender may change.
const hashFields = "55"

// RouterSysctls are what a router must have set.
func RouterSysctls() []Sysctl {
	const (
		forward = "a router forwards"
		policy  = "with policy 1 the sender's random hash chooses the way: flows change their balancer though no route changed"
		fields  = "both addresses, the protocol and both ports choose the way: connections of one client spread too"
	)
	return []Sysctl{
		{"ipv4/ip_forward", "1", forward},
		{"ipv4/fib_multipath_hash_policy", "3", policy},
		{"ipv4/fib_multipath_hash_fields", hashFields, fields},
		{"ipv6/conf/all/forwarding", "1", forward},
		{"ipv6/fib_multipath_hash_policy", "3", policy},
		{"ipv6/fib_multipath_hash_fields", hashFields, fields},
	}
}

// Sysctls sets the given settings in the network namespace of the calling
// thread and returns what puts the old values back, the last first. Where one
// fails, those before it are put back. IPv6 settings are skipped on a machine
// without IPv6.
func Sysctls(settings []Sysctl) (restore func() error, err error) {
	type old struct{ path, value string }
	var done []old
	restore = func() error {
		var errs []error
		for i := len(done) - 1; i >= 0; i-- {
			errs = append(errs, writeSysctl(done[i].path, done[i].value))
		}
		done = nil
		return errors.Join(errs...)
	}
	for _, s := range settings {
		path := filepath.Join("/proc/sys/net", s.Name)
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(s.Name, "ipv6/") {
			continue
		}
		before := strings.TrimSpace(string(b))
		if err == nil && before != s.Value {
			if err = writeSysctl(path, s.Value); err == nil {
				done = append(done, old{path, before})
			}
		}
		if err != nil {
			return func() error { return nil }, errors.Join(
				fmt.Errorf("fib: set net/%s to %s (%s): %w", s.Name, s.Value, s.Reason, err), restore())
		}
	}
	return restore, nil
}

func writeSysctl(path, value string) error {
	return os.WriteFile(path, []byte(value), 0o644)
}
