package device

import (
	"path/filepath"

	"github.com/fairlead/fairlead/internal/sysctl"
)

// Sysctls returns the settings for these interfaces.
func Sysctls(interfaces []string) []sysctl.Setting {
	const forward = "the kernel answers bpf_fib_lookup, and sends on what waits for a neighbor, only where it forwards"
	all := []sysctl.Setting{
		{Path: "ipv4/ip_forward", Value: "1", Why: forward},
		{Path: "ipv6/conf/all/forwarding", Value: "1", Why: forward},
	}
	for _, name := range interfaces {
		all = append(all, sysctl.Setting{Path: filepath.Join("ipv4/conf", name, "accept_local"), Value: "1",
			Why: "packets that wait for neighbor resolution pass the kernel with this load balancer's own address as source"})
	}
	return all
}
