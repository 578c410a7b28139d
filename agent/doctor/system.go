package doctor

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/privilege"
)

// The oldest tested kernel, and a year that any correct clock has passed.
const (
	firstMajor, firstMinor = 6, 1
	firstYear              = 2024
)

// system returns the kernel facts. ok is false if they are unknown, which checkKernel
// reports.
func (e exam) system() (System, bool) { return e.System.Get() }

func checkKernel(e exam) {
	s, known := e.system()
	if !known {
		e.add("kernel", Unknown, "kernel and process: "+e.System.Err, "")
		return
	}
	var major, minor int
	if _, err := fmt.Sscanf(s.Release, "%d.%d", &major, &minor); err != nil {
		e.add("kernel", Unknown, fmt.Sprintf("Linux %q: not a version number", s.Release), "")
		return
	}
	wanted := fmt.Sprintf("Linux %d.%d", firstMajor, firstMinor)
	fix := "boot " + wanted + " or newer: apt-get install --only-upgrade linux-image-amd64, or your distribution's equivalent"
	switch {
	case major > firstMajor || major == firstMajor && minor >= firstMinor:
		e.add("kernel", OK, fmt.Sprintf("Linux %s: %s or newer", s.Release, wanted), "")
	case e.hasEssentials():
		e.add("kernel", Degraded, fmt.Sprintf("Linux %s is older than %s, the oldest tested release; no missing feature is known", s.Release, wanted), fix)
	default:
		e.add("kernel", Broken, fmt.Sprintf("Linux %s is older than %s and lacks features that the roles require", s.Release, wanted), fix)
	}
}

func checkBTF(e exam) {
	s, known := e.system()
	switch {
	case !known || !e.Has(Balancer, DSR, Proxy, VDN):
	case s.BTF:
		e.add("btf", OK, "/sys/kernel/btf/vmlinux exists", "")
	default:
		e.add("btf", Degraded, "/sys/kernel/btf/vmlinux is missing: BPF programs cannot use kernel functions and socket iterators",
			"use a kernel with CONFIG_DEBUG_INFO_BTF=y; in a container, mount the host's /sys")
	}
}

// checkPrivileges distinguishes whether this process lacks privileges or an agent would.
func checkPrivileges(e exam) {
	s, known := e.system()
	if !known {
		return
	}
	missing := e.missing()
	words := privilege.Words(missing)
	switch {
	case len(missing) == 0:
		e.add("capabilities", OK, "this process has all capabilities that the roles require", "")
	case s.Root:
		e.add("capabilities", Broken, "this process runs as root, but lacks "+words+": an agent with the same capabilities does not start",
			"add "+strings.ReplaceAll(words, "CAP_", "")+" to securityContext.capabilities of the container, or to CapabilityBoundingSet of the unit")
	default:
		e.add("capabilities", Unknown, "this process lacks "+words+", which the roles require: run as root to include all checks (sudo fairlead doctor)", "")
	}
}

// missing lists the capabilities that the roles need and the process lacks.
func (e exam) missing() []privilege.Need {
	var names []string
	for _, role := range e.Roles {
		names = append(names, privileged[role])
	}
	if i := slices.Index(names, privilege.Balancer); i >= 0 && e.DataPlane == "ipvs" {
		names[i] = privilege.BalancerIPVS
	} else if i >= 0 {
		names = append(names, privilege.Takeover)
	}
	return privilege.Missing(privilege.For(names...), e.System.Value.Held)
}

// unprobed lists the missing capabilities because of which features could not be probed:
// those needed to load programs, whatever else the roles need.
func (e exam) unprobed() []privilege.Need {
	if e.Has(Balancer, DSR, Proxy, VDN) {
		return privilege.Missing(privilege.For(privilege.Balancer), e.System.Value.Held)
	}
	return e.missing()
}

// privileged maps roles to their names in package privilege.
var privileged = map[Role]string{
	Balancer: privilege.Balancer, DSR: privilege.DSR, Proxy: privilege.Proxy,
	Router: privilege.Router, VDN: privilege.VDNNode, Reflector: privilege.Reflector,
}

func checkSecurity(e exam) {
	s, known := e.system()
	if !known || !e.Has(Balancer, DSR, Proxy, VDN) {
		return
	}
	switch s.Lockdown {
	case "", "none":
	default:
		e.add("lockdown", Info, "kernel lockdown is in mode "+s.Lockdown+": it can forbid BPF; see the kernel features below", "")
	}
	if s.Seccomp {
		e.add("seccomp", Info, "this process runs under a seccomp filter: it can forbid BPF; see the kernel features below", "")
	}
	lsm := ""
	if s.LSM != "" {
		lsm = "; LSMs: " + s.LSM
	}
	switch s.UnprivilegedBPF {
	case "":
	case "0":
		e.add("unprivileged-bpf", Info, "kernel.unprivileged_bpf_disabled is 0: every user may load BPF programs; Fairlead does not need that"+lsm, "")
	default:
		e.add("unprivileged-bpf", OK, "kernel.unprivileged_bpf_disabled is "+s.UnprivilegedBPF+": only privileged processes load BPF programs"+lsm, "")
	}
}

const jitName = "net.core.bpf_jit_enable"

func checkJIT(e exam) {
	jit, known := e.Sysctls.Value[jitName]
	if !known || !e.Has(Balancer, DSR, Proxy, VDN) {
		return
	}
	if jit.Value == "0" {
		e.add("bpf-jit", Degraded, jitName+" is 0: BPF programs are interpreted, which is several times slower", "sysctl -w "+jitName+"=1")
		return
	}
	e.add("bpf-jit", OK, jitName+" is "+jit.Value, "")
}

// Minimum requirements of an agent: maps of the default sizes, and a file descriptor for
// each map, program, link, session and probe.
const (
	leastMemory    = 256 << 20
	leastOpenFiles = 4096
	noLimit        = math.MaxUint64
)

func checkLimits(e exam) {
	s, known := e.system()
	if !known {
		return
	}
	switch {
	case s.MemoryMax == 0 || !e.Has(Balancer, DSR, Proxy, VDN):
	case s.MemoryMax < leastMemory:
		e.add("memory-limit", Degraded, fmt.Sprintf("the cgroup's memory.max is %d MiB, which includes BPF maps: loading may fail with ENOMEM", s.MemoryMax>>20),
			fmt.Sprintf("raise resources.limits.memory, or MemoryMax= of the unit, to at least %dM", leastMemory>>20))
	default:
		e.add("memory-limit", OK, fmt.Sprintf("the cgroup's memory.max is %d MiB", s.MemoryMax>>20), "")
	}
	if s.OpenFiles < leastOpenFiles {
		e.add("open-files", Degraded, fmt.Sprintf("at most %d open files: maps, links, sessions and health checks need one each", s.OpenFiles),
			fmt.Sprintf("ulimit -Hn %d, or LimitNOFILE=%d in the unit", leastOpenFiles, leastOpenFiles))
	} else {
		e.add("open-files", OK, "at most "+limit(s.OpenFiles)+" open files", "")
	}
	if s.LockedMemory != noLimit && e.Has(Balancer, DSR, Proxy, VDN) {
		e.add("locked-memory", Info, fmt.Sprintf("at most %d KiB of locked memory: kernels since 5.11 charge BPF maps to the cgroup instead", s.LockedMemory>>10), "")
	}
}

func limit(n uint64) string {
	if n == noLimit {
		return "any number of"
	}
	return fmt.Sprint(n)
}

func checkClock(e exam) {
	c, known := e.Clock.Get()
	if !known {
		e.add("clock", Unknown, "clock: "+e.Clock.Err, "")
		return
	}
	const fix = "systemctl enable --now chronyd (or systemd-timesyncd)"
	synced, knownSync := c.Synchronized.Get()
	now := c.Now.UTC().Format(time.DateTime)
	switch {
	case c.Now.Year() < firstYear:
		e.add("clock", Broken, "the clock shows "+now+": certificates are not valid yet, and ages are wrong", fix)
	case !knownSync:
		e.add("clock", Unknown, "the clock shows "+now+"; cannot determine whether it is synchronized: "+c.Synchronized.Err, "")
	case !synced:
		e.add("clock", Degraded, "the clock shows "+now+", and is not synchronized: nodes disagree about the age of backends, and about the order of events in logs", fix)
	default:
		e.add("clock", OK, "the clock shows "+now+", and is synchronized", "")
	}
}
