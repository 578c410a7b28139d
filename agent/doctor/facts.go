package doctor

import (
	"time"

	"github.com/fairlead/fairlead/internal/privilege"
)

// Known is a fact, or the reason why it is not known.
type Known[T any] struct {
	Value T
	// Err is empty where the value is known.
	Err string
}

// Get gives the value and whether it is known.
func (k Known[T]) Get() (T, bool) { return k.Value, k.Err == "" }

// Facts are what the checks look at.
type Facts struct {
	System Known[System]
	// Features are the kernel's answers, by component (internal/features).
	Features   map[string]Known[[]Feature]
	Pins       Known[BPFFS]
	CgroupRoot Known[Cgroup]
	Network    Known[Network]
	Sysctls    Known[map[string]Sysctl]
	Sockets    Known[[]Socket]
	Processes  Known[[]Process]
	// Chains are the names of chains of nftables and iptables that kube-proxy
	// made.
	Chains Known[[]string]
	// IPVSServices counts virtual services in the kernel.
	IPVSServices Known[int]
	Agents       Known[[]Agent]
	Manifests    Known[Manifests]
	Clock        Known[Clock]
}

// System is the kernel and this process.
type System struct {
	Release string
	BTF     bool
	Root    bool
	// Held are the process's effective capabilities.
	Held    privilege.Set
	Seccomp bool
	// Lockdown and LSM are empty where they are not known.
	Lockdown, LSM string
	// UnprivilegedBPF is kernel.unprivileged_bpf_disabled, empty where unknown.
	UnprivilegedBPF string
	// MemoryMax is the memory limit of the process's cgroup in bytes, 0 for none.
	MemoryMax uint64
	// OpenFiles is the hard limit of open files, LockedMemory that of locked
	// memory in bytes; ^0 for no limit.
	OpenFiles, LockedMemory uint64
	CPUs                    int
}

// Feature is a kernel feature and the kernel's answer.
type Feature struct {
	Name, Since               string
	Essential, Silent         bool
	OK, Untried               bool
	Reason, Message, WhatLost string
}

// BPFFS is the folder for pins.
type BPFFS struct {
	Path string
	// Mounted: it is on a BPF file system.
	Mounted, Writable bool
	// OtherLayouts are folders of pins that this version cannot take over.
	OtherLayouts []string
	// CarriedOver are folders of an older layout, which an agent takes over.
	CarriedOver []string
}

// Cgroup is the root of cgroup version 2.
type Cgroup struct {
	// Path is empty where none is mounted.
	Path string
	// V2 and Root say what the path is.
	V2, Root bool
}

// Network is what links and routes say.
type Network struct {
	Links []Link
	// Names are all interfaces of the namespace.
	Names  []string
	Routes []Route
	// Neighbours counts entries, by family.
	Neighbours4, Neighbours6 int
}

// Link is an interface that is examined.
type Link struct {
	Name   string
	Driver string // or the kind of a virtual device: "veth"
	MTU    int
	Up     bool
	// Carrier: the other end is up, too.
	Carrier   bool
	Addresses int
	XDP       Known[XDPFeatures]
	Queues    Known[Queues]
	// Attached is the XDP program; nil for none.
	Attached *Program
	// TC are the programs at tcx and clsact.
	TC Known[[]Program]
	// RPFilter is the effective mode: the larger of the interface's and that of
	// all.
	RPFilter int
}

// XDPFeatures are what a driver says of itself (linux/netdev.h).
type XDPFeatures struct{ Basic, Redirect, RedirectTarget, Fragments bool }

// Queues are a NIC's.
type Queues struct{ RX, MaxRX int }

// Nameless is the name of a program that this process may not ask for.
const Nameless = "?"

// Program is a BPF program at an interface.
type Program struct {
	ID   uint32
	Name string
	// Hook is "xdp", "tcx ingress", "clsact egress" and so on.
	Hook string
	// Ours: a link that Fairlead pinned holds it, or its filter is Fairlead's.
	Ours bool
}

// Route is a route of the main table.
type Route struct {
	// Prefix is "default" for a default route.
	Prefix, Device string
	Via            string // the gateway; empty for none
	MTU            int    // 0 where it has none of its own
	IPv6           bool
}

// Sysctl is a setting, by its name: "net.ipv4.ip_forward".
type Sysctl struct {
	Value    string
	Writable bool
}

// Socket is a local port that a process has bound.
type Socket struct {
	UDP  bool
	Port uint16
	// PID and Comm are the owner's; 0 where it is in another PID namespace or may
	// not be looked at.
	PID  int
	Comm string
}

// Process is a running process.
type Process struct {
	PID  int
	Comm string
}

// Agent is what answers, or does not, on a status socket.
type Agent struct {
	Socket string
	// PID is the process's; 0 where unknown.
	PID int
	// Role is as its status has it: "balancer, server".
	Role, Version string
	// Stale: the file is there, but nothing listens.
	Stale bool
	// Error is why it was not asked.
	Error string
	// Waits are the reasons why it is not ready.
	Waits []string
	// Problems and Warnings are its own words.
	Problems, Warnings []string
	// Degraded are the kernel features that it goes without, and what is lost.
	Degraded []string
	Backends int
	// IPVS: its data plane is the kernel's IPVS.
	IPVS bool
}

// Running reports whether it answers.
func (a Agent) Running() bool { return !a.Stale && a.Error == "" }

// Manifests is the folder of --manifest-dir.
type Manifests struct {
	Path  string
	Files int
	// Error is why the folder, or a file in it, cannot be read.
	Error string
}

// Clock is the wall clock.
type Clock struct {
	Now time.Time
	// Synchronised: the kernel's clock is kept in step (adjtimex).
	Synchronised Known[bool]
}
