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

// The statuses. Broken keeps a role from starting or from forwarding at all, so it
// also keeps a pod's agent from starting; Degraded loses something that an operator
// notices, also where load is the cause; Unknown could not be checked.
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
	// Check is the name of the check, with what it is about where there may be
	// several: "rp-filter/eth0".
	Check   string `json:"check"`
	Status  Status `json:"status"`
	Message string `json:"message"`
	// Fix is a command or a setting; degraded and broken findings have one.
	Fix string `json:"fix,omitempty"`
}

// Report is everything that was found. Its JSON names are an interface.
type Report struct {
	Kernel   string    `json:"kernel"`
	Roles    []Role    `json:"roles"`
	Findings []Finding `json:"findings"`
	Broken   int       `json:"broken"`
	Degraded int       `json:"degraded"`
}

// Role is a part that a machine plays.
type Role string

// The roles: those of an agent, as config names them, and those that have a
// command of their own.
const (
	Balancer  Role = "balancer"
	Server    Role = "server"
	Proxy     Role = "proxy"
	Router    Role = "router"
	VDN       Role = "vdn"
	Reflector Role = "reflector"
)

// Roles lists the valid ones.
var Roles = []Role{Balancer, Server, Proxy, Router, VDN, Reflector}

// DefaultRoles are examined where none is named and no agent runs.
var DefaultRoles = []Role{Balancer, Server}

// Options says what to examine.
type Options struct {
	Roles []Role
	// Interfaces are those on which packets arrive; empty for those with a
	// default route.
	Interfaces []string
	// DataPlane is "xdp", "ipvs" or "auto".
	DataPlane string
	BPFFS     string
	// Socket is an agent's; empty for all in the usual folder.
	Socket string
	// Services is the folder of manifests; empty where there is none.
	Services string
	// Cgroup is the root of cgroup version 2 for the role proxy; empty for the
	// one that is mounted.
	Cgroup string
	// Metrics is the "address:port" that Prometheus scrapes; empty for none.
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

// usesXDP and usesIPVS say which data planes a load balancer may use.
func (o Options) usesXDP() bool  { return o.Has(Balancer) && o.DataPlane != "ipvs" }
func (o Options) usesIPVS() bool { return o.Has(Balancer) && o.DataPlane != "xdp" }

// WithRoles fills in the roles where none is named: those that running agents
// have, or else the default.
func (o Options) WithRoles(agents []Agent) Options {
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

// exam is what one area's checks write to.
type exam struct {
	*Facts
	Options
	area string
	to   *[]Finding
}

func (e exam) add(check string, s Status, message, fix string) {
	*e.to = append(*e.to, Finding{Area: e.area, Check: check, Status: s, Message: message, Fix: fix})
}

// areas are the checks, in the order of the report.
var areas = []struct {
	name   string
	checks []func(exam)
}{
	{"system", []func(exam){checkKernel, checkBTF, checkPrivileges, checkSecurity, checkJIT, checkLimits, checkClock}},
	{"bpf", []func(exam){checkFeatures, checkBPFFS, checkCgroup, checkPins}},
	{"interfaces", []func(exam){checkSelection, checkLinks, checkNativeXDP, checkQueues, checkMTU}},
	{"routing", []func(exam){checkDefaultRoutes, checkReversePath, checkRouteMTU, checkForwarding, checkMultipath}},
	{"tables", []func(exam){checkNeighbours, checkConntrack}},
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
