// Package held compares the capabilities of this process with those its roles need.
package held

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/internal/privilege"
)

// Read returns the effective capabilities of the calling thread, or all of them if they are
// unknown. If unprivileged processes may bind to the BGP port, as in network namespaces
// that Docker creates, CAP_NET_BIND_SERVICE is included.
func Read() privilege.Set {
	if lowest, err := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start"); err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(lowest))); err == nil && n <= bgpPort {
			return effective() | 1<<privilege.NetBindService
		}
	}
	return effective()
}

const bgpPort = 179

func effective() privilege.Set {
	text, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return privilege.All
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "CapEff:"); ok {
			if set, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64); err == nil {
				return privilege.Set(set)
			}
		}
	}
	return privilege.All
}

// Lacks returns an error that names the capabilities these roles need and the process does
// not have, or nil.
func Lacks(roles ...string) error {
	return privilege.Error(privilege.Missing(privilege.For(roles...), Read()))
}

// Blame adds the missing capabilities to a permission error.
func Blame(err, lacks error) error {
	if lacks == nil || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return fmt.Errorf("%w; %w", err, lacks)
}
