// Package privilege lists the Linux capabilities that each role of Fairlead needs,
// with the reason (table.go). It is plain values: what a process has is read by
// package held.
package privilege

import (
	"fmt"
	"slices"
	"strings"
)

// Capability is one of capabilities(7), by its number (linux/capability.h).
type Capability uint

// Those that a role needs.
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

// Short is the name in a container's securityContext: NET_ADMIN.
func (c Capability) Short() string { return names[c] }

func (c Capability) String() string { return "CAP_" + names[c] }

// Set is a set of capabilities, a bit each, as /proc/PID/status shows it.
type Set uint64

// All holds every capability.
const All = ^Set(0)

// Has reports whether the kernel lets the holder do what c permits: CAP_SYS_ADMIN
// stands for CAP_BPF and CAP_PERFMON, too (bpf_capable, perfmon_capable).
func (s Set) Has(c Capability) bool {
	if (c == BPF || c == Perfmon) && s.holds(SysAdmin) {
		return true
	}
	return s.holds(c)
}

func (s Set) holds(c Capability) bool { return s&(1<<c) != 0 }

// Need is a capability, and what it is for.
type Need struct {
	Capability Capability
	Why        string
}

// Role is what a process does.
type Role struct {
	Name, Command string
	Needs         []Need
}

// For lists what a process with these roles needs, a capability once, by name.
// Those that another one of the list includes are left out. It panics on a role
// that Table lacks.
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

// Missing lists what is needed and not held.
func Missing(needs []Need, held Set) []Need {
	return slices.DeleteFunc(slices.Clone(needs), func(n Need) bool { return held.Has(n.Capability) })
}

// Words names the capabilities: "CAP_BPF, CAP_NET_ADMIN".
func Words(needs []Need) string {
	words := make([]string, len(needs))
	for i, n := range needs {
		words[i] = n.Capability.String()
	}
	return strings.Join(words, ", ")
}

// Error says what a process lacks and what it wanted it for.
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
