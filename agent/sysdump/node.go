package sysdump

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/agent/doctor"
	"github.com/fairlead/fairlead/agent/explain"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/event"
	"github.com/fairlead/fairlead/core/problem"
)

// Node is what was collected on a node, as far as findings depend on it.
type Node struct {
	Name    string
	Daemons []Daemon
	Doctor  doctor.Report
	// Kernel are counters of the kernel's network that grew while the dump was made.
	Kernel map[string]uint64
}

// Daemon is one agent, reflector or router.
type Daemon struct {
	Socket string
	// Err is why it did not answer.
	Err    error
	Status status.Status
	// Chains explain its Services.
	Chains []explain.Chain
	Events []event.Event
	// Dropped are counts of dropped packets that grew while the dump was made.
	Dropped map[string]uint64
	// Errors are the lines of its log that report errors.
	Errors []string
}

// Findings returns what is wrong on a node, most severe first.
func (n Node) Findings(now time.Time) []Finding {
	f := &findings{node: n.Name}
	for _, d := range n.Daemons {
		if d.Err != nil {
			f.add(Finding{Severity: doctor.Broken, Object: "socket " + d.Socket, Cause: d.Err.Error(), Fix: "start it, or see its log"})
			continue
		}
		f.peers(d.Status)
		f.backends(d.Status)
		f.chains(d.Chains)
		f.problems(d.Status)
		f.state(d.Status)
		f.drops(d)
		f.events(d.Events, now)
		if n := len(d.Errors); n > 0 {
			f.add(Finding{Severity: doctor.Info, Object: "log of " + d.Status.Role, Cause: fmt.Sprintf("errors: %d; the last one: %s", n, d.Errors[n-1])})
		}
	}
	f.kernel(n.Kernel)
	f.doctor(n.Doctor)
	return sorted(f.all)
}

// peerFixes are what to do about the last error of a session, by a part of it.
var peerFixes = []struct{ part, cause, fix string }{
	{"nothing listens there", "", "start the peer, or correct --peer ADDRESS:PORT"},
	{"no answer", "", "check the path, and --password-file on both sides"},
	{"is in AS", "", "correct --local-asn, or --peer ADDRESS@AS"},
	{"without a notification", "the peer may not expect this address", "check --client-range, --router-range or --listen-range there"},
	{"nothing received", "the path is interrupted, or the peer stalls", "check the network, and UDP 3784 and 4784 for BFD"},
	{"router ID", "", "change --router-id of one of both"},
	{"prefixes", "", "increase --max-prefixes there, or advertise fewer"},
}

func (f *findings) peers(s status.Status) {
	for _, p := range s.Peers {
		if p.State == advertise.Established && p.BFD != "down" {
			continue
		}
		one := Finding{Severity: doctor.Degraded, Object: "peer " + cmp.Or(p.Name, p.Address), From: "fairlead get peers",
			Cause: strings.TrimSuffix(fmt.Sprintf("the session with %s is %s: %s", p.Address, p.State, p.LastError), ": "), Fix: "fairlead get events --type PeerDown,PeerUnreachable"}
		if p.BFD == "down" {
			one.Cause += "; BFD is down"
		}
		for _, known := range peerFixes {
			if strings.Contains(p.LastError, known.part) {
				one.Fix = known.fix
				if known.cause != "" {
					one.Cause += " (" + known.cause + ")"
				}
				break
			}
		}
		f.add(one)
	}
}

// backends reports backends that fail their checks, each once.
func (f *findings) backends(s status.Status) {
	seen := map[string]bool{}
	for _, svc := range s.Services {
		for _, front := range svc.Frontends {
			for _, b := range front.Backends {
				id := b.Address.String() + " " + svc.ID
				if b.Health != "down" && b.Health != "removed" || seen[id] {
					continue
				}
				seen[id] = true
				check := string(svc.Check) + " check"
				if b.Detail != nil {
					check = b.Detail.Check
				}
				f.add(Finding{Severity: doctor.Degraded, Object: "backend " + b.Address.String(),
					Cause: fmt.Sprintf("%s is %s for %s: %s (%s)", svc.ID, b.Health, status.Age(b.Since, s.Time), b.LastError, check),
					Fix:   "check the backend, firewalls, and the port and path of the health check", From: "fairlead explain backend " + b.Address.String()})
			}
		}
	}
}

// chains reports where Services stop, and what is wrong with those that do not.
func (f *findings) chains(all []explain.Chain) {
	for _, c := range all {
		for _, s := range c.Steps {
			if s.Reason == "" || strings.HasPrefix(s.Hint, "none needed") || s.OK && s.Step == explain.StepBackends {
				continue
			}
			one := Finding{Severity: doctor.Degraded, Object: c.Kind + " " + c.Name, Cause: s.Step + " " + s.Object + ": " + s.Reason, Fix: s.Hint, From: "fairlead explain " + c.Kind + " " + c.Name}
			if !s.OK {
				one.Severity = doctor.Broken
			}
			f.add(one)
			if !s.OK {
				break
			}
		}
	}
}

// maxProblems limits how many problems of a daemon become findings; status.json has all.
const maxProblems = 1000

func (f *findings) problems(s status.Status) {
	for _, p := range s.Problems[:min(len(s.Problems), maxProblems)] {
		if f.mentions(p.Message) {
			continue
		}
		one := Finding{Severity: doctor.Degraded, Object: cmp.Or(p.Object, p.Where), Cause: problem.Problem{Where: p.Where, Field: p.Field, Message: p.Message}.String(), From: "fairlead status", Fix: "correct it; until then, the last valid version, if any, stays in use"}
		if p.Failure {
			one.Fix = "it is retried; see the kernel's error"
		}
		f.add(one)
	}
	for _, o := range s.Stale {
		f.add(Finding{Severity: doctor.Degraded, Object: o.Object, Cause: "its current version is rejected; the last valid one is in use since " + o.Since.UTC().Format(time.RFC3339), From: "fairlead status", Fix: "correct " + cmp.Or(o.Where, "the object")})
	}
}

// state reports a drain, degraded features and warnings.
func (f *findings) state(s status.Status) {
	if s.Drain != nil {
		f.add(Finding{Severity: doctor.Degraded, Object: "drain", Cause: s.DrainWords(), Fix: "fairlead undrain, or kubectl uncordon, if it should be in service", From: "fairlead get events --type DrainStarted"})
	}
	for _, d := range s.Degraded {
		f.add(Finding{Severity: doctor.Degraded, Object: "kernel feature " + d.Feature, Cause: d.String(), Fix: "see docs/kernel-features.md"})
	}
	if s.DataPlane == nil {
		return
	}
	for _, w := range s.DataPlane.Warnings {
		f.add(Finding{Severity: doctor.Degraded, Object: "data plane", Cause: w, From: "fairlead status"})
	}
}

// drops reports packets that were dropped during the dump, or earlier.
func (f *findings) drops(d Daemon) {
	if p := d.Status.DataPlane; p != nil {
		f.counters("dropped packets", "fairlead drops --follow", p.Drops, d.Dropped, func(reason string) string {
			return cmp.Or(explain.DropHint(reason), "see docs/troubleshooting.md, drop reasons")
		})
	}
	if s := d.Status.DSRAgent; s != nil {
		dropped := map[string]uint64{}
		for name, n := range s.Counters {
			if strings.HasPrefix(name, "dropped-") {
				dropped[name] = n
			}
		}
		f.counters("packets at the backend node", "fairlead status", dropped, d.Dropped, func(string) string { return "see docs/troubleshooting.md, packets at the backend node" })
	}
}

func (f *findings) counters(object, from string, total, grew map[string]uint64, fix func(string) string) {
	for _, name := range slices.Sorted(maps.Keys(total)) {
		switch {
		case total[name] == 0:
		case grew[name] > 0:
			f.add(Finding{Severity: doctor.Degraded, Object: object, Cause: fmt.Sprintf("%s: %d packets while the dump was made, %d in total", name, grew[name], total[name]), Fix: fix(name), From: from})
		default:
			f.add(Finding{Severity: doctor.Info, Object: object, Cause: fmt.Sprintf("%s: %d packets since the start, none while the dump was made", name, total[name]), Fix: fix(name), From: from})
		}
	}
}

// kernelCauses are what counters of the kernel mean (/proc/net/netstat, /proc/net/snmp).
var kernelCauses = map[string]struct{ cause, fix string }{
	"TCPMD5NotFound":      {"connections without a TCP MD5 signature arrive: a BGP peer has no password", "use the same --password-file on both sides"},
	"TCPMD5Unexpected":    {"connections with a TCP MD5 signature arrive: a BGP peer has a password, and this side none", "use the same --password-file on both sides"},
	"TCPMD5Failure":       {"connections with a wrong TCP MD5 signature arrive: a BGP peer has another password", "use the same --password-file on both sides"},
	"IPReversePathFilter": {"packets arrive by another interface than the one toward their senders (asymmetric route), and rp_filter drops them", "sysctl -w net.ipv4.conf.all.rp_filter=2, and for the interface, or correct the routes"},
	"InNoRoutes":          {"packets arrive that the kernel has no route for", "ip route get for their destinations"},
	"OutNoRoutes":         {"this node sends to destinations that it has no route to", "ip route get for the peers and backends"},
	"FragFails":           {"packets are larger than the MTU, and must not be fragmented", "increase the MTU (docs/getting-started.md)"},
}

func (f *findings) kernel(grew map[string]uint64) {
	for _, name := range slices.Sorted(maps.Keys(grew)) {
		if known, is := kernelCauses[name]; is && grew[name] > 0 {
			f.add(Finding{Severity: doctor.Degraded, Object: "kernel " + name, Cause: fmt.Sprintf("%s (%d while the dump was made)", known.cause, grew[name]), Fix: known.fix, From: "nstat -a"})
		}
	}
}

func (f *findings) doctor(r doctor.Report) {
	for _, d := range r.Findings {
		// What agents report about themselves is in the other findings.
		if d.Status != doctor.Broken && d.Status != doctor.Degraded || d.Check == "problems" || d.Check == "degraded" || d.Check == "data-plane" {
			continue
		}
		f.add(Finding{Severity: d.Status, Object: d.Check, Cause: d.Message, Fix: d.Fix, From: "fairlead doctor"})
	}
}
