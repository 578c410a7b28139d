package xdp

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// sysctl is a setting of the network namespace that the program needs.
type sysctl struct {
	path  string // below /proc/sys/net
	value string
	why   string
}

// sysctls gives the settings for these interfaces.
func sysctls(interfaces []string) []sysctl {
	const forward = "the kernel answers bpf_fib_lookup, and sends on what waits for a neighbour, only where it forwards"
	all := []sysctl{
		{"ipv4/ip_forward", "1", forward},
		{"ipv6/conf/all/forwarding", "1", forward},
	}
	for _, name := range interfaces {
		all = append(all, sysctl{filepath.Join("ipv4/conf", name, "accept_local"), "1",
			"what waits for a neighbour comes up the kernel with this balancer's own address as its source"})
	}
	return all
}

// setSysctls sets what is not yet right. IPv6 may be absent.
func setSysctls(interfaces []string) error {
	for _, s := range sysctls(interfaces) {
		if err := s.set("/proc/sys/net"); err != nil {
			return err
		}
	}
	return nil
}

func (s sysctl) set(root string) error {
	path := filepath.Join(root, s.path)
	name := "net." + strings.ReplaceAll(s.path, "/", ".")
	have, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(s.path, "ipv6/") {
		return nil
	}
	if err != nil {
		return fmt.Errorf("xdp: sysctl %s: %w: is the interface's name right?", name, err)
	}
	if strings.TrimSpace(string(have)) == s.value {
		return nil
	}
	// Not made where absent, and not truncated: /proc knows neither.
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(s.value)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("xdp: sysctl %s is %s: %w: set it to %s from outside, because %s",
			name, strings.TrimSpace(string(have)), err, s.value, s.why)
	}
	return nil
}
