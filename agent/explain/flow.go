package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/xdp"
)

// FlowFacts are what is known of a flow.
type FlowFacts struct {
	Client, VIP netip.AddrPort
	Protocol    service.Protocol
	// Trace is what the load balancer does with a packet of the flow; nil if this agent
	// cannot trace.
	Trace *xdp.Trace
	// Tracked are the entries of flow tables. They are only read without a Trace.
	Tracked []dataplane.Flow
}

func (f FlowFacts) key() service.Key {
	return service.Key{VIP: f.VIP.Addr(), Port: f.VIP.Port(), Protocol: f.Protocol}
}

// Flow explains what this node does with a flow.
func Flow(s status.Status, f FlowFacts) Chain {
	c := Chain{Kind: "flow", Name: fmt.Sprintf("%s %s > %s", f.Protocol, f.Client, f.VIP)}
	svc, frontend := matching(s, f.key())
	if f.Trace != nil {
		traced(&c, f, svc, frontend)
		return c
	}
	step := Step{Step: StepFrontend, Object: f.key().String(), Source: "plan", OK: frontend != nil}
	if frontend != nil {
		step.Source, step.Programmed = sourceOf(svc.Origin), fmt.Sprintf("%s of Service %s", frontend.Key(), svc.ID)
	}
	c.add(noFrontend(s, f, step))
	if frontend == nil {
		return c
	}
	c.add(allowed(f, svc, *frontend))
	c.add(tracked(f))
	return c
}

// matching returns the frontend of a packet: a port takes precedence over a range, and a
// range over the whole address. One that has lost a conflict comes last.
func matching(s status.Status, k service.Key) (of *status.Service, found *status.Frontend) {
	best := -1
	for i := range s.Services {
		for j := range s.Services[i].Frontends {
			f := &s.Services[i].Frontends[j]
			if r := rank(*f); r > best && takes(*f, k) {
				of, found, best = &s.Services[i], f, r
			}
		}
	}
	return of, found
}

func isWhole(f status.Frontend) bool { return f.Port == 0 && f.LastPort == 65535 }

func takes(f status.Frontend, k service.Key) bool {
	return f.VIP == k.VIP && (isWhole(f) || f.Protocol == k.Protocol.String()) && f.Port <= k.Port && k.Port <= max(f.Port, f.LastPort)
}

// rank is the precedence of a frontend.
func rank(f status.Frontend) (r int) {
	switch {
	case isWhole(f):
	case f.LastPort != 0:
		r = 1
	default:
		r = 2
	}
	if f.State != plan.Conflict {
		r += 3
	}
	return r
}

// noFrontend completes a step about the frontend with the reason why none matches.
func noFrontend(s status.Status, f FlowFacts, step Step) Step {
	if step.OK {
		return step
	}
	var others []string
	for _, svc := range s.Services {
		for _, one := range svc.Frontends {
			if one.VIP == f.VIP.Addr() {
				others = append(others, one.Key())
			}
		}
	}
	step.Programmed, step.Hint = "none", "check the address, port and protocol that the client uses: fairlead get services"
	step.Reason = fmt.Sprintf("no Service has the address %s", f.VIP.Addr())
	if len(others) > 0 {
		step.Reason = fmt.Sprintf("no Service has this port and protocol; the address has %s", some(others, ", "))
	}
	return step
}

// stepOf is the step in which a packet is dropped, by drop reason; StepForwarded for
// others.
var stepOf = map[string]string{
	"no-frontend": StepFrontend, "source-denied": StepPolicy, "rate-limited": StepPolicy, "martian-source": StepPolicy, "source-route": StepPolicy,
	"no-backend": StepBackend, "full": StepBackend, "no-port": StepBackend, "flows-full": StepBackend, "flow-busy": StepBackend,
	"syn-cookie": StepBackend, "syn-odd": StepBackend, "syn-flow-lost": StepBackend,
}

// dropHints are what to do about a drop.
var dropHints = map[string]string{
	"no-frontend":   "check the address, port and protocol that clients use: fairlead get services",
	"source-denied": "check loadBalancerSourceRanges and fairlead.io/deny-source-ranges",
	"rate-limited":  "increase fairlead.io/rate-limits",
	"no-backend":    hints["draining"],
	"full":          "increase fairlead.io/max-connections, or add backends",
	"no-port":       "add load balancers or backends",
	"flows-full":    "increase --max-flows",
	"no-route":      hintPath,
	"no-neighbor":   "connect load balancer and backend to the same segment, or use another forwarding mode",
	"no-source":     "add an address of the backends' family to the interface",
	"too-big":       "increase the MTU toward the backends, or decrease it at the client",
}

// DropHint returns what to do about a drop reason, or "".
func DropHint(reason string) string { return dropHints[reason] }

// traced explains a flow by the trace of a packet.
func traced(c *Chain, f FlowFacts, svc *status.Service, planned *status.Frontend) {
	t := f.Trace
	say := func(notes ...string) string {
		var words []string
		for _, s := range t.Steps {
			if slices.Contains(notes, s.Note) {
				words = append(words, s.Text)
			}
		}
		return strings.Join(words, "; ")
	}
	dropped := ""
	if t.Drop != "" {
		dropped = cmp.Or(stepOf[t.Drop], StepForwarded)
	}
	add := func(s Step) bool {
		s.OK = s.Step != dropped && s.Reason == ""
		if s.Step == dropped {
			s.Reason, s.Hint = strings.TrimPrefix(s.Reason+"; dropped: "+t.Drop, "; "), cmp.Or(s.Hint, dropHints[t.Drop])
		}
		c.add(s)
		return s.OK
	}
	first := Step{Step: StepFrontend, Object: f.key().String(), Source: "kernel", Programmed: strings.TrimPrefix(say("frontend"), "frontend ")}
	if planned != nil {
		first.Desired = fmt.Sprintf("Service %s (%s)", svc.ID, sourceOf(svc.Origin))
	}
	if first.Programmed == "" {
		first.Reason, first.Hint = notOurs(f, planned, say("not-ours", "own", "unserved", "mac", "packet"))
	}
	if !add(first) {
		return
	}
	policy := Step{Step: StepPolicy, Object: f.Client.Addr().String(), Source: "kernel", Desired: policyWords(planned), Programmed: cmp.Or(say("guard"), "no source ranges or rate limits")}
	if dropped == StepPolicy {
		policy.Programmed = "dropped"
	}
	if !add(policy) {
		return
	}
	if !add(Step{Step: StepBackend, Object: f.key().String(), Source: "kernel", Programmed: cmp.Or(say("slot", "server", "flow-made", "syn"), "by its flow")}) {
		return
	}
	add(Step{Step: StepTracked, Object: f.Client.String(), Source: "flow table", Programmed: cmp.Or(say("flow"), "not by this load balancer")})
	add(Step{Step: StepForwarded, Object: f.key().String(), Source: "kernel", Programmed: strings.Trim(say("ask", "next-hop", "answer")+"; "+t.Verdict, "; ")})
}

// notOurs returns why no frontend of the kernel matches, and a hint.
func notOurs(f FlowFacts, planned *status.Frontend, traced string) (reason, hint string) {
	switch {
	case planned == nil:
		return traced, "check the address, port and protocol that the client uses: fairlead get services"
	case planned.Reason != "":
		return planned.Key() + " is " + stateWords(*planned), hints[string(planned.State)]
	}
	return traced, "fairlead explain service NAME shows each step of the Service"
}

// policyWords describes the configured policy of a frontend.
func policyWords(f *status.Frontend) string {
	if f == nil || f.Detail == nil || f.Detail.Desired == nil {
		return ""
	}
	d := f.Detail.Desired
	var words []string
	if len(d.SourceRanges) > 0 {
		words = append(words, "allow "+prefixes(d.SourceRanges))
	}
	if len(d.DenySourceRanges) > 0 {
		words = append(words, "deny "+prefixes(d.DenySourceRanges))
	}
	if d.RateLimits != "" {
		words = append(words, d.RateLimits)
	}
	return strings.Join(words, "; ")
}

func prefixes(all []netip.Prefix) string {
	words := make([]string, len(all))
	for i, p := range all {
		words[i] = p.String()
	}
	return some(words, ", ")
}

// allowed evaluates the source ranges of a frontend.
func allowed(f FlowFacts, svc *status.Service, frontend status.Frontend) Step {
	step := Step{Step: StepPolicy, Object: f.Client.Addr().String(), Source: sourceOf(svc.Origin), Desired: policyWords(&frontend), Programmed: "allowed", OK: true, Hint: dropHints["source-denied"]}
	d := frontend.Detail
	if d == nil || d.Desired == nil {
		return step
	}
	contains := func(p netip.Prefix) bool { return p.Contains(f.Client.Addr()) }
	denied := slices.ContainsFunc(d.Desired.DenySourceRanges, contains)
	if denied || len(d.Desired.SourceRanges) > 0 && !slices.ContainsFunc(d.Desired.SourceRanges, contains) {
		step.OK, step.Programmed, step.Reason = false, "denied", "the client is outside the source ranges of the Service"
	}
	return step
}

// tracked reports the entry of a flow table.
func tracked(f FlowFacts) Step {
	step := Step{Step: StepTracked, Object: f.Client.String(), Source: "flow table", Programmed: "no entry", OK: true}
	for _, one := range f.Tracked {
		step.Programmed = fmt.Sprintf("to %s, %s, idle for %s", one.Server, one.State, one.Idle.Round(time.Second))
	}
	return step
}
