package gather

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/agent/doctor"
	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/internal/sysctl"
	"github.com/fairlead/fairlead/internal/version"
)

func system(context.Context) (doctor.System, error) {
	p := features.ReadPrivileges()
	s := doctor.System{
		Release: version.Release(), Root: os.Geteuid() == 0, Held: p.Held, Seccomp: p.Seccomp,
		Lockdown: p.Lockdown, LSM: p.LSM, UnprivilegedBPF: read("/proc/sys/kernel/unprivileged_bpf_disabled"),
		MemoryMax: memoryMax(), CPUs: runtime.NumCPU(),
	}
	_, err := os.Stat("/sys/kernel/btf/vmlinux")
	s.BTF = err == nil
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return s, err
	}
	s.OpenFiles = limit.Max
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return s, err
	}
	s.LockedMemory = limit.Max
	return s, nil
}

// read returns the trimmed contents of a file, or "".
func read(path string) string {
	text, _ := os.ReadFile(path)
	return strings.TrimSpace(string(text))
}

// memoryMax returns the lowest memory.max of this process's cgroups; 0: none.
func memoryMax() (least uint64) {
	root, err := cgroupMount()
	if err != nil || root == "" {
		return 0
	}
	for line := range strings.Lines(read("/proc/self/cgroup")) {
		own, v2 := strings.CutPrefix(strings.TrimSpace(line), "0::")
		for dir := filepath.Join("/", own); v2; dir = filepath.Dir(dir) {
			n, err := strconv.ParseUint(read(filepath.Join(root, dir, "memory.max")), 10, 64)
			if err == nil && (least == 0 || n < least) {
				least = n
			}
			if dir == "/" {
				break
			}
		}
	}
	return least
}

// settings lists the sysctls to examine, below /proc/sys/net.
var settings = []string{
	"core/bpf_jit_enable",
	"ipv4/ip_forward", "ipv6/conf/all/forwarding",
	"ipv4/fib_multipath_hash_policy", "ipv6/fib_multipath_hash_policy",
	"ipv4/fib_multipath_hash_fields", "ipv6/fib_multipath_hash_fields",
	"ipv4/neigh/default/gc_thresh3", "ipv6/neigh/default/gc_thresh3",
	"netfilter/nf_conntrack_max", "netfilter/nf_conntrack_count",
}

func sysctls(context.Context) (map[string]doctor.Sysctl, error) {
	all := map[string]doctor.Sysctl{}
	for _, path := range settings {
		if value := sysctl.Read(path); value != "" {
			all["net."+strings.ReplaceAll(path, "/", ".")] = doctor.Sysctl{Value: value, Writable: sysctl.Writable(path)}
		}
	}
	return all, nil
}

func clock(context.Context) (doctor.Clock, error) {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	// The state also indicates an error while a leap second is added; the flag is exact.
	synced := err == nil && state >= 0 && t.Status&unix.STA_UNSYNC == 0
	return doctor.Clock{Now: time.Now(), Synchronized: known(synced, err)}, nil
}

// featuresPart probes the kernel for one component.
func featuresPart(component string) part {
	set := func(k doctor.Known[[]doctor.Feature]) func(*doctor.Facts) {
		return func(f *doctor.Facts) { f.Features[component] = k }
	}
	return part{
		get: func(context.Context) func(*doctor.Facts) {
			return set(known(probe(features.Component(component)), nil))
		},
		late: set(doctor.Known[[]doctor.Feature]{Err: late}),
	}
}

func probe(c features.Component) (all []doctor.Feature) {
	for _, r := range features.ProbeAll(c) {
		row, _ := features.Lookup(r.Feature)
		all = append(all, doctor.Feature{
			Name: r.Feature, Since: row.Since, Essential: r.Essential, Silent: row.Silent, OK: r.OK, Untried: r.Untried,
			Reason: r.Reason, Message: r.Message, WhatLost: cmp.Or(r.Lost, row.Without),
		})
	}
	return all
}
