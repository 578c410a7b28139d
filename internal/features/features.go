// Package features lists the features of the Linux kernel that Fairlead uses: which BPF
// program types, map types, helpers and attach points, and which parts of netlink. Each
// entry is essential or optional, and names the loss without it. The table (table.go) is
// the only place where this is decided; loading (load.go), `fairlead doctor`, the refusal
// tests and docs/kernel-features.md follow it.
//
// What a component does without an optional feature belongs to that component.
package features

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Component is a part of Fairlead that uses the kernel.
type Component string

// Components, by the names that status and metrics show.
const (
	Balancer     Component = "balancer"      // XDP
	DSRAgent     Component = "dsr-agent"     // tc, on nodes with backends
	SocketProxy  Component = "socket-proxy"  // cgroup: Services for local sockets
	PacketProxy  Component = "packet-proxy"  // tc: Services for packets
	VDN          Component = "vdn"           // tc and HTB: virtually dedicated networks
	IPVSBalancer Component = "ipvs-balancer" // netlink
	Router       Component = "router"        // netlink
)

// Components lists all components, in the order of the documentation.
var Components = []Component{Balancer, DSRAgent, SocketProxy, PacketProxy, VDN, IPVSBalancer, Router}

// Feature is one row of the table.
type Feature struct {
	// Name is stable: status, metrics and Events use it.
	Name string
	// Components that use it.
	Components []Component
	// Since is the first kernel version that has it.
	Since string
	// Essential features stop a component that does not get them. What it programmed before
	// stays in force.
	Essential bool
	// Silent marks an optional feature whose fallback loses nothing that an
	// operator notices: it is reported by doctor, not as degraded.
	Silent bool
	// Without says in one sentence what happens without it.
	Without string
	// Needs are the kernel interfaces to probe; all of them are required.
	Needs []Need
}

// For reports whether a component uses the feature.
func (f Feature) For(c Component) bool { return slices.Contains(f.Components, c) }

// Requires lists the needs as text: "map type RingBuf, helper bpf_ringbuf_reserve".
func (f Feature) Requires() string {
	words := make([]string, len(f.Needs))
	for i, n := range f.Needs {
		words[i] = n.String()
	}
	return strings.Join(words, ", ")
}

// Probe probes everything that the feature needs on behalf of a component. It returns a
// *Refusal for the first need that the kernel rejects, and changes nothing.
func (f Feature) Probe(c Component) error {
	for _, n := range f.Needs {
		if err := n.probe(c); err != nil {
			return &Refusal{Need: n.String(), Since: f.Since, Err: err}
		}
	}
	return nil
}

// Lookup returns the feature of that name.
func Lookup(name string) (Feature, bool) {
	i := slices.IndexFunc(Table, func(f Feature) bool { return f.Name == name })
	if i < 0 {
		return Feature{}, false
	}
	return Table[i], true
}

// Refusal is the kernel's rejection of a need.
type Refusal struct {
	Need string
	// Since is the first kernel version that has it.
	Since string
	Err   error
}

func (r *Refusal) Error() string { return fmt.Sprintf("%s: %s", r.Need, kernelWords(r.Err)) }

func (r *Refusal) Unwrap() error { return r.Err }

// Degraded is an optional feature that a component runs without. Its JSON names
// are an interface.
type Degraded struct {
	// Feature is the name of the kernel feature.
	Feature string `json:"feature"`
	// Component is the part of Fairlead that runs without it.
	Component Component `json:"component"`
	// Reason is short and stable, for metrics: "EPERM", "not-supported".
	Reason string `json:"reason"`
	// Message is the kernel's error message.
	Message string `json:"message"`
	// Lost is what does not work.
	Lost string `json:"lost"`
}

func (d Degraded) String() string {
	return fmt.Sprintf("%s (%s): %s; %s", d.Feature, d.Component, d.Lost, d.Message)
}

// NewDegraded describes a feature that the kernel rejected with err.
func NewDegraded(name string, c Component, err error) Degraded {
	f, _ := Lookup(name)
	return Degraded{Feature: name, Component: c, Reason: Reason(err), Message: err.Error(), Lost: f.Without}
}

// Reason returns an error in one word: its errno, "not-supported" or "verifier".
func Reason(err error) string {
	var errno unix.Errno
	var verifier *ebpf.VerifierError
	switch {
	case errors.As(err, &verifier) && len(verifier.Log) > 0:
		return "verifier"
	case errors.As(err, &errno) && unix.ErrnoName(errno) != "":
		return unix.ErrnoName(errno)
	case errors.Is(err, ebpf.ErrNotSupported):
		return "not-supported"
	}
	return "other"
}

// Result is the outcome of one probe.
type Result struct {
	Feature    string      `json:"feature"`
	Components []Component `json:"components"`
	Essential  bool        `json:"essential"`
	OK         bool        `json:"ok"`
	// Untried: there was no network namespace to try it in (ErrCannotTry), so OK false is
	// not conclusive.
	Untried bool   `json:"untried,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	Lost    string `json:"lost,omitempty"`
}

// ProbeAll probes every feature of these components, or of all if none is named, in the
// order of the table.
func ProbeAll(components ...Component) []Result {
	var results []Result
	for _, f := range Table {
		r := Result{Feature: f.Name, Essential: f.Essential, OK: true}
		for _, c := range f.Components {
			if len(components) > 0 && !slices.Contains(components, c) {
				continue
			}
			r.Components = append(r.Components, c)
			if err := f.Probe(c); err != nil && r.OK {
				r.OK, r.Reason, r.Message, r.Lost = false, Reason(err), err.Error(), f.Without
				r.Untried = errors.Is(err, ErrCannotTry)
			}
		}
		if len(r.Components) > 0 {
			results = append(results, r)
		}
	}
	return results
}
