// Package held compares what this process may do with what its roles need.
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

// Read gives the effective capabilities of the calling thread; all of them where
// that is unknown. Where everybody may listen on BGP's port, as in the namespaces that
// Docker makes, CAP_NET_BIND_SERVICE is among them.
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

// Lacks names the capabilities that these roles need and the process does not have;
// nil for none.
func Lacks(roles ...string) error {
	return privilege.Error(privilege.Missing(privilege.For(roles...), Read()))
}

// Blame adds to an error of permission what the process lacks.
func Blame(err, lacks error) error {
	if lacks == nil || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return fmt.Errorf("%w; %w", err, lacks)
}
