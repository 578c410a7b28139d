// Package privilege lists the Linux capabilities that each Fairlead role needs, and why
// (table.go). It contains only data; package held reads what a process has.
package privilege

import (
	"fmt"
	"slices"
	"strings"
)

// Capability is a capability from capabilities(7), by number (linux/capability.h).
type Capability uint

// Capabilities that roles need.
const (
	NetBindService Capability = 10
	NetAdmin       Capability = 12
	NetRaw         Capability = 13
	SysAdmin       Capability = 21
	Perfmon        Capability = 38
	BPF            Capability = 39
)

var names = map[Capability]string{
	NetBindService: "NET_BIND_SERVICE", NetAdmin: "NET_ADMIN", NetRaw: "NET_RAW", SysAdmin: "SYS_ADMIN", Perfmon: "PERFMON", BPF: "BPF",
}

// Short returns the name used in a container's securityContext: NET_ADMIN.
func (c Capability) Short() string { return names[c] }

func (c Capability) String() string { return "CAP_" + names[c] }

// Set is a bit set of capabilities, in the format of /proc/PID/status.
type Set uint64

// All contains every capability.
const All = ^Set(0)

// Has reports whether the kernel permits what c covers. CAP_SYS_ADMIN implies CAP_BPF and
// CAP_PERFMON (bpf_capable, perfmon_capable).
func (s Set) Has(c Capability) bool {
	if (c == BPF || c == Perfmon) && s.holds(SysAdmin) {
		return true
	}
	return s.holds(c)
}

func (s Set) holds(c Capability) bool { return s&(1<<c) != 0 }

// Need is a capability and its purpose.
type Need struct {
	Capability Capability
	Why        string
}

// Role is a function of a process.
type Role struct {
	Name, Command string
	Needs         []Need
}

// For returns what a process with these roles needs, each capability once, sorted by name.
// Capabilities implied by another one in the list are omitted. It panics on a role that is
// not in Table.
func For(roles ...string) []Need {
	var all []Need
	var set Set
	for _, name := range roles {
		i := slices.IndexFunc(Table, func(r Role) bool { return r.Name == name })
		if i < 0 {
			panic("privilege: no role " + name)
		}
		for _, n := range Table[i].Needs {
			if !set.holds(n.Capability) {
				all = append(all, n)
			}
			set |= 1 << n.Capability
		}
	}
	all = slices.DeleteFunc(all, func(n Need) bool { return (set &^ (1 << n.Capability)).Has(n.Capability) })
	slices.SortFunc(all, func(a, b Need) int { return strings.Compare(a.Capability.Short(), b.Capability.Short()) })
	return all
}

// Missing returns the needs that held does not cover.
func Missing(needs []Need, held Set) []Need {
	return slices.DeleteFunc(slices.Clone(needs), func(n Need) bool { return held.Has(n.Capability) })
}

// Words joins the names of the capabilities: "CAP_BPF, CAP_NET_ADMIN".
func Words(needs []Need) string {
	words := make([]string, len(needs))
	for i, n := range needs {
		words[i] = n.Capability.String()
	}
	return strings.Join(words, ", ")
}

// Error describes the missing capabilities and their purposes.
func Error(missing []Need) error {
	if len(missing) == 0 {
		return nil
	}
	each := make([]string, len(missing))
	for i, n := range missing {
		each[i] = fmt.Sprintf("%s, with which it %s", n.Capability, n.Why)
	}
	return fmt.Errorf("the process lacks %s", strings.Join(each, "; and "))
}
