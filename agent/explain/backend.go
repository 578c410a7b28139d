package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent/selection"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/dataplane"
)

// used is a backend of one frontend.
type used struct {
	svc      status.Service
	frontend status.Frontend
	status.Backend
}

// Backends explains the backends with a name: an address, with or without a port, or that
// of a pod or machine. It is an error if none exists.
func Backends(s status.Status, name string) ([]Chain, error) {
	at := map[netip.AddrPort][]used{}
	for _, svc := range s.Services {
		for _, f := range svc.Frontends {
			for _, b := range f.Backends {
				if selection.IsBackend(name, b.Address, b.Name) {
					at[b.Address] = append(at[b.Address], used{svc, f, b})
				}
			}
		}
	}
	if len(at) == 0 {
		return nil, fmt.Errorf("unknown backend %s: %s", name, unread(s, "see fairlead get backends"))
	}
	chains := make([]Chain, 0, len(at))
	for _, uses := range at {
		chains = append(chains, backendChain(s, uses))
	}
	slices.SortFunc(chains, func(a, b Chain) int { return strings.Compare(a.Name, b.Name) })
	return chains, nil
}

// backendChain explains one backend with everything that uses it.
func backendChain(s status.Status, uses []used) Chain {
	b := uses[0].Backend
	c := Chain{Kind: "backend", Name: b.Address.String()}
	for _, svc := range servicesOf(uses) {
		c.add(Step{Step: StepRead, Object: "Service " + svc.ID, Source: sourceOf(svc.Origin), Programmed: place(b), OK: true})
	}
	if s.DataPlane == nil {
		for _, u := range uses {
			c.add(local(u))
		}
		return c
	}
	for _, u := range distinctChecks(uses) {
		c.add(healthy(s, u))
	}
	served := slices.ContainsFunc(uses, func(u used) bool { return !u.frontend.State.Elsewhere() })
	for _, u := range uses {
		step := selected(s, u)
		step.OK = step.OK || served && u.frontend.State.Elsewhere()
		c.add(step)
	}
	if b.Detail != nil && b.Detail.Path != nil {
		c.add(path(b))
	}
	for _, u := range uses {
		if u.Local != nil {
			c.add(local(u))
		}
	}
	c.add(Step{Step: StepTraffic, Object: b.Address.String(), Source: "data plane", OK: true,
		Programmed: fmt.Sprintf("%d flows, %d packets", b.Counts.Flows, b.Counts.Packets)})
	return c
}

func servicesOf(uses []used) (all []status.Service) {
	for _, u := range uses {
		if !slices.ContainsFunc(all, func(s status.Service) bool { return s.ID == u.svc.ID }) {
			all = append(all, u.svc)
		}
	}
	return all
}

// place returns "pod web-1 on node1".
func place(b status.Backend) string {
	words := b.Name
	if b.Node != "" {
		words = strings.TrimSpace(words + " on " + b.Node)
	}
	return words
}

// checkOf describes the health check of a use.
func (u used) checkOf() string {
	if u.Detail != nil {
		return u.Detail.Check
	}
	return string(u.svc.Check)
}

// distinctChecks returns one use for each different health check.
func distinctChecks(uses []used) (all []used) {
	for _, u := range uses {
		if !slices.ContainsFunc(all, func(o used) bool { return o.checkOf() == u.checkOf() && o.Health == u.Health }) {
			all = append(all, u)
		}
	}
	return all
}

// healthy reports the result of the health check.
func healthy(s status.Status, u used) Step {
	step := Step{Step: StepHealth, Object: u.Address.String(), Source: "health check of " + u.svc.ID, Desired: u.checkOf(), Hint: hintHealth}
	step.Programmed = u.Health
	if !u.Since.IsZero() {
		step.Programmed += " for " + status.Age(u.Since, s.Time)
	}
	switch u.Health {
	case "up", "unchecked":
		step.OK = true
	case "unknown":
		step.Reason, step.Hint = "its first health check has not ended", hints[string(plan.AwaitingHealth)]
	default:
		step.Reason = cmp.Or(oneLine(u.LastError), "its health check fails")
	}
	return step
}

// selected reports whether a frontend selects the backend for new flows.
func selected(s status.Status, u used) Step {
	step := Step{Step: StepSelected, Object: u.frontend.Key(), Source: "data plane", Desired: fmt.Sprintf("weight %d", u.Weight), Programmed: "not in use"}
	if u.InService {
		step.Programmed = fmt.Sprintf("weight %d", u.ProgrammedWeight)
		if d := u.frontend.Detail; d != nil && u.Detail != nil && d.Slots > 0 {
			step.Programmed += fmt.Sprintf(", %d of %d slots", u.Detail.Slots, d.Slots)
		}
	}
	if u.Detail != nil && !u.Detail.ServingSince.IsZero() {
		step.Programmed += ", serving for " + status.Age(u.Detail.ServingSince, s.Time)
	}
	switch {
	case u.Quarantine != nil:
		step.Reason, step.Hint = u.Quarantine.Why()+": it keeps its flows and gets no new ones", hintBackendUndrain
	case u.Weight == 0:
		step.Reason, step.Hint = "weight 0 or terminating: it keeps its flows and gets no new ones", hints[string(plan.Draining)]
	case u.InService && u.ProgrammedWeight == u.Weight:
		step.OK = true
	case u.InService && u.ProgrammedWeight == 0:
		step.Reason = "it fails its health check: it keeps its flows and gets no new ones"
	case u.InService:
		step.Reason, step.Hint = "the kernel does not have the desired weight yet", hints[string(status.Pending)]
	case !u.frontend.State.Programmed():
		step.Reason, step.Hint = "the frontend is "+stateWords(u.frontend), hints[string(u.frontend.State)]
	default:
		step.Reason = "it is excluded: it fails its health check"
	}
	return step
}

// path reports how the kernel sends packets to the backend.
func path(b status.Backend) Step {
	p := *b.Detail.Path
	return Step{Step: StepReachable, Object: b.Address.Addr().String(), Source: "kernel", Desired: "a path",
		Programmed: pathWords(p), OK: p.Error == "", Reason: p.Error, Hint: hintPath}
}

// pathWords returns "via 10.0.0.1 on eth0, MAC 02:00:00:00:00:01, MTU 1500".
func pathWords(p dataplane.Path) string {
	if p.Local {
		return "an address of this node"
	}
	var words []string
	switch {
	case p.Gateway.IsValid():
		words = append(words, fmt.Sprintf("via %s on %s", p.Gateway, p.Interface))
	case p.Interface != "":
		words = append(words, "on "+p.Interface)
	}
	if p.MAC != "" {
		words = append(words, "MAC "+p.MAC)
	}
	if p.MTU > 0 {
		words = append(words, fmt.Sprintf("MTU %d", p.MTU))
	}
	return strings.Join(words, ", ")
}

// local reports what this node's DSR agent does for the backend.
func local(u used) Step {
	step := Step{Step: StepDelivered, Object: u.frontend.Key(), Source: "DSR agent", OK: true}
	switch l := u.Local; {
	case l == nil:
		step.Programmed = "not needed"
	case l.Here:
		step.Programmed = fmt.Sprintf("delivered on this node, %d flows", l.Flows)
	default:
		step.Programmed = "not on this node: " + l.Reason
	}
	return step
}
