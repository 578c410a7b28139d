// Package doctor decides whether a machine can run Fairlead: it turns facts about
// the kernel, the network and other software into findings, each with a status,
// what it means and a command that fixes it. It is pure: agent/doctor/gather collects
// the facts, cmd/fairlead prints the report. A check takes facts and returns
// findings; it reads no file, socket or clock, and nothing here changes anything.
package doctor

import (
	"slices"
	"strings"
)

// Status is the outcome of one check.
type Status string

// Statuses. Broken prevents a role from starting or from forwarding at all, and therefore
// also prevents a pod's agent from starting. Degraded means a loss that an operator
// notices, possibly only under load. Unknown could not be checked.
const (
	OK       Status = "ok"
	Info     Status = "info"
	Unknown  Status = "unknown"
	Degraded Status = "degraded"
	Broken   Status = "broken"
)

// Finding is one result. Its JSON names are an interface.
type Finding struct {
	Area string `json:"area"`
	// Check is the name of the check, followed by its object if there can be several:
	// "rp-filter/eth0".
	Check   string `json:"check"`
	Status  Status `json:"status"`
	Message string `json:"message"`
	// Fix is a command or a setting. Degraded and broken findings have one.
	Fix string `json:"fix,omitempty"`
}

// Report contains all findings. Its JSON names are an interface.
type Report struct {
	Kernel   string    `json:"kernel"`
	Roles    []Role    `json:"roles"`
	Findings []Finding `json:"findings"`
	Broken   int       `json:"broken"`
	Degraded int       `json:"degraded"`
}

// Role is a function of a machine.
type Role string

// The roles of an agent, as named in package config, and those with a command of their
// own.
const (
	Balancer  Role = "balancer"
	DSR       Role = "dsr"
	Proxy     Role = "proxy"
	Router    Role = "router"
	VDN       Role = "vdn"
	Reflector Role = "reflector"
)

// Roles lists the valid roles.
var Roles = []Role{Balancer, DSR, Proxy, Router, VDN, Reflector}

// DefaultRoles are examined if none is specified and no agent is running.
var DefaultRoles = []Role{Balancer, DSR}

// Options says what to examine.
type Options struct {
	Roles []Role
	// Interfaces lists those on which packets arrive; empty: those with a default route.
	Interfaces []string
	// Attached are interfaces to which running agents attached an XDP program.
	Attached []string
	// DataPlane is "xdp", "ipvs" or "auto".
	DataPlane string
	BPFFS     string
	// Socket is the socket of an agent; empty: all in the default directory.
	Socket string
	// Services is the manifest directory, if any.
	Services string
	// Cgroup is the root of cgroup version 2 for the role proxy; empty: where it is
	// mounted.
	Cgroup string
	// Metrics is the "address:port" that Prometheus scrapes, if any.
	Metrics string
	// Health is the "address:port" of the service proxy's health check.
	Health string
	// GUEPort is the UDP port of GUE tunnels.
	GUEPort uint16
}

// Has reports whether one of the roles is examined.
func (o Options) Has(roles ...Role) bool {
	return slices.ContainsFunc(roles, func(r Role) bool { return slices.Contains(o.Roles, r) })
}

// usesXDP and usesIPVS report which data planes a load balancer may use.
func (o Options) usesXDP() bool  { return o.Has(Balancer) && o.DataPlane != "ipvs" }
func (o Options) usesIPVS() bool { return o.Has(Balancer) && o.DataPlane != "xdp" }

// WithRoles fills in the roles if none is specified: those of running agents, otherwise
// the default. It adds the interfaces of these agents.
func (o Options) WithRoles(agents []Agent) Options {
	for _, a := range agents {
		o.Attached = append(o.Attached, a.Attached...)
	}
	if len(o.Roles) > 0 {
		return o
	}
	for _, a := range agents {
		for role := range strings.SplitSeq(a.Role, ",") {
			r := Role(strings.TrimSpace(role))
			if slices.Contains(Roles, r) && !slices.Contains(o.Roles, r) {
				o.Roles = append(o.Roles, r)
			}
		}
	}
	if len(o.Roles) == 0 {
		o.Roles = DefaultRoles
	}
	return o
}

// exam is the context in which the checks of one area run.
type exam struct {
	*Facts
	Options
	area string
	to   *[]Finding
}

func (e exam) add(check string, s Status, message, fix string) {
	*e.to = append(*e.to, Finding{Area: e.area, Check: check, Status: s, Message: message, Fix: fix})
}

// areas lists the checks in report order.
var areas = []struct {
	name   string
	checks []func(exam)
}{
	{"system", []func(exam){checkKernel, checkBTF, checkPrivileges, checkSecurity, checkJIT, checkLimits, checkClock}},
	{"bpf", []func(exam){checkFeatures, checkBPFFS, checkCgroup, checkPins}},
	{"interfaces", []func(exam){checkSelection, checkLinks, checkNativeXDP, checkQueues, checkMTU}},
	{"routing", []func(exam){checkDefaultRoutes, checkReversePath, checkRouteMTU, checkForwarding, checkMultipath}},
	{"tables", []func(exam){checkNeighbors, checkConntrack}},
	{"ports", []func(exam){checkPorts}},
	{"other software", []func(exam){checkXDPPrograms, checkTCPrograms, checkIPVSServices, checkKubeProxyChains, checkProcesses}},
	{"agent", []func(exam){checkAgents, checkManifests}},
}

// Examine turns facts into a report.
func Examine(f *Facts, o Options) Report {
	r := Report{Kernel: f.System.Value.Release, Roles: o.Roles, Findings: []Finding{}}
	for _, area := range areas {
		for _, check := range area.checks {
			check(exam{f, o, area.name, &r.Findings})
		}
	}
	r.Broken, r.Degraded = r.Count(Broken), r.Count(Degraded)
	return r
}

// Count counts the findings of a status.
func (r Report) Count(s Status) int {
	n := 0
	for _, f := range r.Findings {
		if f.Status == s {
			n++
		}
	}
	return n
}
