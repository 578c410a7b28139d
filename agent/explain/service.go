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
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/service"
)

// Services explains the Services with these names, each "namespace/name" or "name". It is
// an error if one is unknown.
func Services(s status.Status, names ...string) ([]Chain, error) {
	var chains []Chain
	for _, name := range names {
		found := false
		for _, svc := range s.Services {
			namespace, short, _ := strings.Cut(svc.ID, "/")
			if selection.IsService(name, namespace, short) {
				found = true
				chains = append(chains, serviceChain(s, svc))
			}
		}
		if found {
			continue
		}
		c, ok := rejected(s, name)
		if !ok {
			return nil, fmt.Errorf("unknown service %s: %s", name, unread(s, "see fairlead get services"))
		}
		chains = append(chains, c)
	}
	return chains, nil
}

// unread returns the problem of an agent that has not read its Services yet, else otherwise.
func unread(s status.Status, otherwise string) string {
	for _, p := range s.Problems {
		if p.Object == "Services" {
			return p.String()
		}
	}
	return otherwise
}

// addressField is the field of a Service that waits for an address.
const addressField = "status.loadBalancer.ingress"

// rejected explains a Service that this node knows only from its problems.
func rejected(s status.Status, name string) (c Chain, found bool) {
	for _, p := range s.Problems {
		id, is := strings.CutPrefix(p.Object, "Service ")
		namespace, short, _ := strings.Cut(id, "/")
		if !is || !selection.IsService(name, namespace, short) {
			continue
		}
		if !found {
			c = Chain{Kind: "service", Name: id}
			c.add(Step{Step: StepRead, Object: p.Object, Source: sourceOf(p.Where), OK: true})
		}
		found = true
		step := Step{Step: StepAccepted, Object: p.Object, Source: sourceOf(p.Where), Desired: "valid", Programmed: "not served", Reason: words(p), Hint: hintManifest}
		if p.Field == addressField {
			c.add(Step{Step: StepAccepted, Object: p.Object, Source: sourceOf(p.Where), OK: true})
			step.Step, step.Desired, step.Programmed, step.Hint = StepAddress, "an address", "none", hintAddress
		}
		c.add(step)
	}
	return c, found
}

// sourceOf returns where an object is defined.
func sourceOf(origin string) string { return cmp.Or(origin, "API server") }

// words returns a problem without its object and file.
func words(p problem.Problem) string {
	return problem.Problem{Field: p.Field, Message: p.Message}.String()
}

// serviceChain explains a Service that this node knows.
func serviceChain(s status.Status, svc status.Service) Chain {
	c := Chain{Kind: "service", Name: svc.ID}
	object := "Service " + svc.ID
	c.add(Step{Step: StepRead, Object: object, Source: sourceOf(svc.Origin), OK: true})
	c.add(accepted(s, svc))
	vips := addresses(svc)
	c.add(Step{Step: StepAddress, Object: object, Source: sourceOf(svc.Origin), Programmed: joined(vips), OK: len(vips) > 0})
	for _, f := range svc.Frontends {
		frontend(&c, s, svc, f)
	}
	if s.DataPlane == nil {
		return c
	}
	s.Services = []status.Service{svc}
	for _, v := range s.ExplainServices() {
		advertised(&c, s, v)
	}
	return c
}

func addresses(svc status.Service) []netip.Addr {
	var vips []netip.Addr
	for _, f := range svc.Frontends {
		vips = append(vips, f.VIP)
	}
	slices.SortFunc(vips, netip.Addr.Compare)
	return slices.Compact(vips)
}

func joined(vips []netip.Addr) string {
	words := make([]string, len(vips))
	for i, a := range vips {
		words[i] = a.String()
	}
	return some(words, ", ")
}

// accepted reports what of the Service's objects is rejected.
func accepted(s status.Status, svc status.Service) Step {
	step := Step{Step: StepAccepted, Object: "Service " + svc.ID, Source: sourceOf(svc.Origin), OK: true}
	objects := []string{}
	for _, o := range s.Stale {
		if o.Service == svc.ID {
			objects = append(objects, o.Object)
		}
	}
	var all []string
	for _, p := range s.Problems {
		slice, isSlice := strings.CutPrefix(p.Object, "EndpointSlice ")
		isSlice = isSlice && (slices.Contains(objects, p.Object) || slice == svc.ID || strings.HasPrefix(slice, svc.ID+"-"))
		if p.Failure || p.Object != "Service "+svc.ID && !isSlice || isConflict(svc, p) {
			continue
		}
		all = append(all, words(p))
		step.Object, step.Source, step.Hint = p.Object, sourceOf(p.Where), hintManifest
		if isSlice && lacksBackends(svc) {
			step.OK = false
		}
	}
	step.Reason = some(all, "; ")
	if !svc.StaleSince.IsZero() {
		step.OK = false
		step.Desired, step.Programmed = "the current version", "the last valid version, for "+status.Age(svc.StaleSince, s.Time)
		step.Reason = cmp.Or(step.Reason, "the current version is rejected (fairlead status)")
	}
	return step
}

// isConflict reports whether a problem is the conflict of a frontend, which is a step of
// its own.
func isConflict(svc status.Service, p problem.Problem) bool {
	return slices.ContainsFunc(svc.Frontends, func(f status.Frontend) bool {
		return f.State == plan.Conflict && strings.HasPrefix(p.Message, f.Reason)
	})
}

func lacksBackends(svc status.Service) bool {
	return slices.ContainsFunc(svc.Frontends, func(f status.Frontend) bool { return f.State == plan.NoEndpoints })
}

// frontend explains one VIP and port.
func frontend(c *Chain, s status.Status, svc status.Service, f status.Frontend) {
	planned := Step{Step: StepPlanned, Object: f.Key(), Source: sourceOf(svc.Origin), Desired: settings(svc, f), OK: true}
	if f.State.Elsewhere() {
		planned.OK, planned.Reason, planned.Hint = false, stateWords(f), hints[string(f.State)]
		planned.Programmed = "not on this node"
		c.add(planned)
		return
	}
	c.add(planned)
	if s.DataPlane == nil {
		c.add(delivered(f))
		return
	}
	c.add(usable(s, svc, f))
	c.add(programmed(f))
	if step, known := reachable(f); known {
		if why := asymmetric(s, svc, f); why != "" {
			step.Reason = strings.TrimPrefix(step.Reason+"; "+why, "; ")
		}
		c.add(step)
	}
}

// asymmetric says for a Service whose replies must pass through this load balancer from which
// backends they arrive by an interface without its program, if the path back is the path there.
func asymmetric(s status.Status, svc status.Service, f status.Frontend) string {
	attached := s.DataPlane.Interfaces()
	if svc.ForwardingMode != service.NAT && svc.ForwardingMode != service.FullNAT || len(attached) == 0 {
		return ""
	}
	var not []string
	for _, b := range f.Backends {
		if b.Detail == nil || b.Detail.Path == nil || b.Detail.Path.Local || b.Detail.Path.Interface == "" {
			continue
		}
		if !slices.Contains(attached, b.Detail.Path.Interface) {
			not = append(not, fmt.Sprintf("%s on %s", b.Address, b.Detail.Path.Interface))
		}
	}
	if len(not) == 0 {
		return ""
	}
	return "asymmetric route: replies arrive by an interface without the program (--interface): " + some(not, ", ")
}

// stateWords returns "no-endpoints: reason".
func stateWords(f status.Frontend) string {
	return strings.TrimSuffix(string(f.State)+": "+f.Reason, ": ")
}

// settings describes how a frontend should be served.
func settings(svc status.Service, f status.Frontend) string {
	if f.Detail != nil && f.Detail.Desired != nil {
		return f.Detail.Desired.String()
	}
	return fmt.Sprintf("%s, %s", svc.ForwardingMode, svc.Scheduler)
}

// usable reports whether backends take new flows.
func usable(s status.Status, svc status.Service, f status.Frontend) Step {
	step := Step{Step: StepBackends, Object: f.Key(), Source: "EndpointSlices of " + svc.ID, Desired: count(len(f.Backends), "backend"), OK: true}
	var takes, drains int
	var ill []string
	for _, b := range f.Backends {
		switch {
		case b.Weight == 0:
			drains++
		case b.Passes():
			takes++
		default:
			ill = append(ill, illness(s, b))
		}
	}
	step.Programmed = fmt.Sprintf("%d healthy", takes)
	if drains > 0 {
		step.Programmed += fmt.Sprintf(", %d draining", drains)
	}
	step.Reason = some(ill, "; ")
	switch f.State {
	case plan.NoEndpoints, plan.NoHealthyBackend, plan.AwaitingHealth, plan.Draining:
		step.OK = false
		step.Reason = strings.TrimSuffix(stateWords(f)+"; "+step.Reason, "; ")
	case plan.Panic:
		step.Reason = strings.TrimSuffix(stateWords(f)+"; "+step.Reason, "; ")
	}
	step.Hint = cmp.Or(hints[string(f.State)], hintBackend)
	return step
}

// illness returns "172.16.2.10:8080 is down for 12s: connection refused".
func illness(s status.Status, b status.Backend) string {
	words := fmt.Sprintf("%s is %s", b.Address, b.Health)
	if !b.Since.IsZero() {
		words += " for " + status.Age(b.Since, s.Time)
	}
	return strings.TrimSuffix(words+": "+oneLine(b.LastError), ": ")
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// programmed compares the data plane with what is desired.
func programmed(f status.Frontend) Step {
	serves := f.State.Programmed()
	step := Step{Step: StepProgrammed, Object: f.Key(), Source: "data plane", OK: serves, Hint: hints[string(f.State)]}
	if f.State == status.Rejected || f.State == status.Pending {
		step.Reason = stateWords(f)
	}
	d := f.Detail
	if d == nil {
		step.Programmed = "no"
		if serves {
			step.Programmed = "yes"
		}
		return step
	}
	if d.Live {
		step.Source = "kernel"
	}
	step.Desired, step.Programmed = "none", "none"
	if d.Desired != nil {
		step.Desired = fmt.Sprintf("%s, %s", d.Desired, count(d.Desired.Backends, "backend"))
	}
	if d.Programmed != nil {
		step.Programmed = fmt.Sprintf("%s, %s", d.Programmed, count(d.Programmed.Backends, "backend"))
		if d.Slots > 0 {
			step.Programmed += fmt.Sprintf(", %d slots", d.Slots)
		}
	}
	switch {
	case d.Error != "":
		step.Reason = "the kernel cannot be read: " + d.Error
	case step.OK && d.Programmed == nil:
		step.OK, step.Reason = false, "the kernel does not have it"
	case len(d.Differs) > 0:
		step.OK, step.Reason = false, cmp.Or(step.Reason, strings.Join(d.Differs, "; "))
	}
	if !step.OK {
		step.Hint = cmp.Or(step.Hint, hints[string(status.Pending)])
	}
	return step
}

// reachable reports whether the kernel has a path to the backends that are in service.
// It is unknown if the Status has no paths.
func reachable(f status.Frontend) (step Step, known bool) {
	step = Step{Step: StepReachable, Object: f.Key(), Source: "kernel", Hint: hintPath}
	var reached, all int
	var not []string
	for _, b := range f.Backends {
		if b.Detail == nil || b.Detail.Path == nil || !b.InService {
			continue
		}
		if all++; b.Detail.Path.Error == "" {
			reached++
		} else {
			not = append(not, fmt.Sprintf("%s: %s", b.Address, b.Detail.Path.Error))
		}
	}
	step.Desired, step.Programmed = count(all, "backend"), fmt.Sprintf("%d have a path", reached)
	step.OK, step.Reason = reached > 0, some(not, "; ")
	return step, all > 0
}

// delivered reports what a DSR agent without a load balancer does for a frontend.
func delivered(f status.Frontend) Step {
	step := Step{Step: StepDelivered, Object: f.Key(), Source: "DSR agent", Desired: count(len(f.Backends), "backend"), OK: true}
	here := 0
	for _, b := range f.Backends {
		if b.Local != nil && b.Local.Here {
			here++
		}
	}
	step.Programmed = fmt.Sprintf("%d on this node", here)
	step.Reason, step.Hint = f.Reason, hints[string(f.State)]
	step.OK = f.State == plan.Active || f.State == status.Idle
	return step
}

// advertised explains the route of one address.
func advertised(c *Chain, s status.Status, v status.Verdict) {
	step := Step{Step: StepAdvertised, Object: v.VIP.String(), Source: requestedBy(s, v), OK: v.Advertised}
	if v.Prefix.IsValid() {
		step.Desired = v.Prefix.String()
		if v.NextHop.IsValid() {
			step.Desired = route.Route{Prefix: v.Prefix, NextHop: v.NextHop, Attributes: v.Attributes}.String()
		}
	}
	bySession := v.Rule == status.RuleNoSession || v.Rule == status.RuleStandby
	reason := strings.Join(append([]string{string(v.Rule) + ": " + v.Reason}, v.Notes...), "; ")
	switch {
	case v.Advertised || bySession:
		step.OK = true
		if step.Programmed = "advertised"; !v.Since.IsZero() {
			step.Programmed += " for " + status.Age(v.Since, s.Time)
		}
	case !v.Prefix.IsValid() && c.StopsAt != "":
		step.Programmed, step.Reason = "not advertised", "no frontend of the address can be served"
	default:
		step.Programmed, step.Reason, step.Hint = "not advertised", reason, ruleHint(v.Rule)
	}
	c.add(step)
	if !step.OK {
		return
	}
	received := Step{Step: StepReceived, Object: v.VIP.String(), Source: "peers", Programmed: v.Reason, OK: v.Advertised, Reason: strings.Join(v.Notes, "; "), Hint: hintPeers}
	switch v.Rule {
	case status.RuleStandby: // another load balancer answers, as it should
		received.OK = true
	case status.RuleNoSession:
		received.Programmed, received.Reason = "no peer", reason
	}
	c.add(received)
}

// requestedBy returns what requests the route of an address.
func requestedBy(s status.Status, v status.Verdict) string {
	for _, r := range s.Routes {
		if r.Prefix == v.Prefix && len(r.Advertisements) > 0 {
			return some(r.Advertisements, ", ")
		}
	}
	return "Service " + v.Service
}
