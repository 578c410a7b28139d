package doctor

import (
	"time"

	"github.com/fairlead/fairlead/internal/privilege"
)

// Known is a fact, or the reason why it is unknown.
type Known[T any] struct {
	Value T
	// Err is empty if the value is known.
	Err string
}

// Get returns the value and whether it is known.
func (k Known[T]) Get() (T, bool) { return k.Value, k.Err == "" }

// Facts is the input of the checks.
type Facts struct {
	System Known[System]
	// Features holds the results of the feature probes, by component (internal/features).
	Features   map[string]Known[[]Feature]
	Pins       Known[BPFFS]
	CgroupRoot Known[Cgroup]
	Network    Known[Network]
	Sysctls    Known[map[string]Sysctl]
	Sockets    Known[[]Socket]
	Processes  Known[[]Process]
	// Chains lists the nftables and iptables chains of kube-proxy.
	Chains Known[[]string]
	// IPVSServices counts virtual services in the kernel.
	IPVSServices Known[int]
	Agents       Known[[]Agent]
	Manifests    Known[Manifests]
	Clock        Known[Clock]
}

// System describes the kernel and this process.
type System struct {
	Release string
	BTF     bool
	Root    bool
	// Held is the set of effective capabilities of the process.
	Held    privilege.Set
	Seccomp bool
	// Lockdown and LSM are empty if unknown.
	Lockdown, LSM string
	// UnprivilegedBPF is kernel.unprivileged_bpf_disabled; empty if unknown.
	UnprivilegedBPF string
	// MemoryMax is the memory limit of the process's cgroup in bytes; 0: none.
	MemoryMax uint64
	// OpenFiles is the hard limit of open files, LockedMemory that of locked memory in
	// bytes; ^0: no limit.
	OpenFiles, LockedMemory uint64
	CPUs                    int
}

// Feature is a kernel feature with the result of its probe.
type Feature struct {
	Name, Since               string
	Essential, Silent         bool
	OK, Untried               bool
	Reason, Message, WhatLost string
}

// BPFFS is the directory for pins.
type BPFFS struct {
	Path string
	// Mounted means that it is on a BPF file system.
	Mounted, Writable bool
	// OtherLayouts lists pin directories that this version cannot take over.
	OtherLayouts []string
	// CarriedOver lists directories of an older layout, which an agent takes over.
	CarriedOver []string
}

// Cgroup is the root of cgroup version 2.
type Cgroup struct {
	// Path is empty if none is mounted.
	Path string
	// V2 and Root report whether Path is cgroup version 2 and its root.
	V2, Root bool
}

// Network describes links and routes.
type Network struct {
	Links []Link
	// Names lists all interfaces of the namespace.
	Names  []string
	Routes []Route
	// Neighbors4 and Neighbors6 count neighbor entries by family.
	Neighbors4, Neighbors6 int
}

// Link is an examined interface.
type Link struct {
	Name   string
	Driver string // or the kind of a virtual device: "veth"
	MTU    int
	Up     bool
	// Carrier means that the other end is also up.
	Carrier   bool
	Addresses int
	XDP       Known[XDPFeatures]
	Queues    Known[Queues]
	// Attached is the XDP program; nil for none.
	Attached *Program
	// TC lists the programs attached to tcx and clsact.
	TC Known[[]Program]
	// RPFilter is the effective mode: the larger of the interface's and that of "all".
	RPFilter int
}

// XDPFeatures are the features that a driver reports (linux/netdev.h).
type XDPFeatures struct{ Basic, Redirect, RedirectTarget, Fragments bool }

// Queues are the receive queues of a NIC.
type Queues struct{ RX, MaxRX int }

// Nameless is the name of a program that this process may not query.
const Nameless = "?"

// Program is a BPF program attached to an interface.
type Program struct {
	ID   uint32
	Name string
	// Hook is "xdp", "tcx ingress", "clsact egress" and so on.
	Hook string
	// Ours means that it is held by a link that Fairlead pinned, or is in a Fairlead
	// filter.
	Ours bool
}

// Route is a route of the main table.
type Route struct {
	// Prefix is "default" for a default route.
	Prefix, Device string
	Via            string // the gateway; empty for none
	MTU            int    // 0 if it does not set one
	IPv6           bool
}

// Sysctl is the value of a kernel setting, which is keyed by name, like
// "net.ipv4.ip_forward".
type Sysctl struct {
	Value    string
	Writable bool
}

// Socket is a local port that a process has bound.
type Socket struct {
	UDP  bool
	Port uint16
	// PID and Comm identify the owner; 0 if it is in another PID namespace or
	// inaccessible.
	PID  int
	Comm string
}

// Process is a running process.
type Process struct {
	PID  int
	Comm string
}

// Agent describes the status socket of an agent, whether or not it responds.
type Agent struct {
	Socket string
	// PID is the process ID; 0 if unknown.
	PID int
	// Role is as in its status: "balancer, dsr".
	Role, Version string
	// Stale means that the file exists but nothing listens.
	Stale bool
	// Error is why it could not be queried.
	Error string
	// Waits lists the reasons why it is not ready.
	Waits []string
	// Problems and Warnings are as reported by the agent.
	Problems, Warnings []string
	// Degraded lists the kernel features that it runs without, and the consequences.
	Degraded []string
	Backends int
	// Attached are the interfaces to which it attached its XDP program.
	Attached []string
	// IPVS means that its data plane is the kernel's IPVS.
	IPVS bool
}

// Running reports whether the agent responds.
func (a Agent) Running() bool { return !a.Stale && a.Error == "" }

// Manifests is the directory of --manifest-dir.
type Manifests struct {
	Path  string
	Files int
	// Error is why the directory, or a file in it, cannot be read.
	Error string
}

// Clock is the wall clock.
type Clock struct {
	Now time.Time
	// Synchronized means that the kernel's clock is synchronized (adjtimex).
	Synchronized Known[bool]
}
