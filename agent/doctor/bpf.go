package doctor

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/privilege"
)

// components lists the components of each role, by their names in internal/features.
var components = map[Role][]string{
	Balancer: {"balancer", ipvsBalancer},
	DSR:      {"dsr-agent"},
	Proxy:    {"socket-proxy", "packet-proxy"},
	Router:   {"router"},
	VDN:      {"vdn"},
}

const ipvsBalancer = "ipvs-balancer"

// Components returns the components whose kernel features must be probed.
func (o Options) Components() (all []string) {
	for _, role := range o.Roles {
		for _, c := range components[role] {
			wanted := role != Balancer || c == ipvsBalancer && o.usesIPVS() || c != ipvsBalancer && o.usesXDP()
			if wanted && !slices.Contains(all, c) {
				all = append(all, c)
			}
		}
	}
	return all
}

// lacks lists the missing essential features of a component.
func (e exam) lacks(component string) (names []string) {
	for _, f := range e.Features[component].Value {
		if f.Essential && !f.OK && !f.Untried {
			names = append(names, f.Name)
		}
	}
	return names
}

// hasEssentials reports whether no component is known to lack an essential feature.
func (e exam) hasEssentials() bool {
	return !slices.ContainsFunc(e.Components(), func(c string) bool { return len(e.lacks(c)) > 0 && e.other(c) == "" })
}

// other returns the data plane that can be used instead of a component, or "".
func (e exam) other(component string) string {
	if !e.usesXDP() || !e.usesIPVS() {
		return ""
	}
	return map[string]string{"balancer": ipvsBalancer, ipvsBalancer: "balancer"}[component]
}

func checkFeatures(e exam) {
	seen := map[string]bool{}
	for _, c := range e.Components() {
		known := e.Features[c]
		switch {
		case known.Err != "":
			e.add("features/"+c, Unknown, "kernel features of the "+c+": "+known.Err, "")
		case len(e.unprobed()) > 0:
			e.add("features/"+c, Unknown, "kernel features of the "+c+": not probed, because this process lacks "+privilege.Words(e.unprobed()), "")
		case len(known.Value) == 0:
			e.add("features/"+c, Unknown, "kernel features of the "+c+": not probed", "")
		default:
			e.component(c, known.Value, seen)
		}
	}
}

// component adds one finding for all essential features, and one for each other feature.
// Those already reported for an earlier component are not repeated.
func (e exam) component(c string, features []Feature, seen map[string]bool) {
	essential := 0
	for _, f := range features {
		if f.Essential {
			essential++
		}
		if f.Essential && f.OK || seen[f.Name] {
			continue
		}
		seen[f.Name] = true
		e.feature(c, f)
	}
	if len(e.lacks(c)) == 0 {
		e.add("features/"+c, OK, fmt.Sprintf("the kernel has all %d essential features of the %s", essential, c), "")
	}
}

func (e exam) feature(c string, f Feature) {
	name := "feature/" + f.Name
	fix := fmt.Sprintf("use Linux %s or newer, built with this feature; check seccomp and LSM policies", f.Since)
	message := fmt.Sprintf("%s. Without it, %s", strings.TrimSuffix(f.Message, "."), f.WhatLost)
	switch {
	case f.OK:
		e.add(name, OK, "available", "")
	case f.Untried:
		e.add(name, Unknown, f.Message, "")
	case f.Essential && e.other(c) != "" && len(e.Features[e.other(c)].Value) == 0:
		e.add(name, Unknown, f.Message+". The other data plane was not probed", "")
	case f.Essential && e.other(c) != "" && len(e.lacks(e.other(c))) == 0:
		e.add(name, Info, f.Message+". The other data plane works", "")
	case f.Essential && c == ipvsBalancer:
		e.add(name, Broken, message, "modprobe ip_vs, or --dataplane xdp")
	case f.Essential:
		e.add(name, Broken, message, fix)
	case f.Silent:
		e.add(name, Info, message, "")
	default:
		e.add(name, Degraded, message, fix)
	}
}

func checkBPFFS(e exam) {
	b, known := e.Pins.Get()
	fix := "mount -t bpf bpf /sys/fs/bpf, or set --bpffs to a folder on a BPF file system"
	switch {
	case !e.Has(Balancer, DSR, Proxy, VDN):
	case !known:
		e.add("bpffs", Unknown, "BPF file system: "+e.Pins.Err, "")
	case !b.Mounted && e.System.Value.Root && !e.System.Value.Held.Has(privilege.SysAdmin):
		e.add("bpffs", Broken, b.Path+" is not on a BPF file system, and this process cannot mount one: programs and maps cannot be pinned", fix)
	case !b.Mounted:
		e.add("bpffs", Degraded, b.Path+" is not on a BPF file system: the agent mounts one, but in a container that mount ends with the container, and so does forwarding", fix)
	case !b.Writable && e.System.Value.Root:
		e.add("bpffs", Broken, b.Path+" is a BPF file system that is mounted read-only: programs and maps cannot be pinned", "mount -o remount,rw "+b.Path+"; in a container, mount the volume without readOnly")
	case !b.Writable:
		e.add("bpffs", Unknown, b.Path+" is a BPF file system; run as root to check whether it is writable", "")
	default:
		e.add("bpffs", OK, b.Path+" is a writable BPF file system", "")
	}
}

func checkPins(e exam) {
	b, known := e.Pins.Get()
	if !known || !e.Has(Balancer) {
		return
	}
	for _, folder := range b.OtherLayouts {
		e.add("pins/"+path.Base(folder), Broken, folder+" contains maps of another release, whose layout this release cannot use: the agent does not start",
			"stop the agent of the other release, then rm -r "+folder+", which stops its forwarding")
	}
	for _, folder := range b.CarriedOver {
		e.add("pins/"+path.Base(folder), Info, folder+" contains maps of an older layout, which the agent takes over when it starts", "")
	}
}

func checkCgroup(e exam) {
	if !e.Has(Proxy) {
		return
	}
	c, known := e.CgroupRoot.Get()
	const fix = "mount -t cgroup2 none /sys/fs/cgroup/unified, or set --cgroup to the root of cgroup v2"
	switch {
	case !known:
		e.add("cgroup", Unknown, "cgroup v2: "+e.CgroupRoot.Err, "")
	case c.Path == "":
		e.add("cgroup", Degraded, "cgroup v2 is not mounted: the agent mounts it at /run/fairlead/cgroup2", fix)
	case !c.V2:
		e.add("cgroup", Broken, c.Path+" is not a cgroup v2 hierarchy: socket programs cannot be attached", fix)
	case !c.Root:
		e.add("cgroup", Degraded, c.Path+" is not the root of cgroup v2: only processes below it reach Services", fix)
	default:
		e.add("cgroup", OK, c.Path+" is the root of cgroup v2", "")
	}
}
