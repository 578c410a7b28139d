// Package explain says why an object is as it is: the chain of steps from its manifest to
// the kernel and to the routers, each with its source, what is desired and what is
// programmed, and the first step that is not complete. It derives everything from the
// agent's Status, and reads neither the kernel nor a clock.
package explain

import (
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/agent/status"
)

// Chain explains one object.
type Chain struct {
	// Kind is "service", "backend", "route" or "flow".
	Kind string `json:"kind"`
	// Name is the name of the object.
	Name string `json:"name"`
	// Complete means that all steps are.
	Complete bool `json:"complete"`
	// StopsAt is the name of the first step that is not complete.
	StopsAt string `json:"stopsAt,omitempty"`
	Steps   []Step `json:"steps"`
}

// Step is one step of a chain.
type Step struct {
	// Step is its name.
	Step string `json:"step"`
	// Object is what it is about: a Service, frontend, backend, prefix or peer.
	Object string `json:"object"`
	// Source is what decides: a file and line, or an object.
	Source string `json:"source,omitempty"`
	// Desired is what should be, Programmed what is.
	Desired    string `json:"desired,omitempty"`
	Programmed string `json:"programmed,omitempty"`
	// OK means that the step is complete.
	OK bool `json:"ok"`
	// Reason is why a step is not complete, or what is wrong although it is.
	Reason string `json:"reason,omitempty"`
	// Hint is what to do about it.
	Hint string `json:"hint,omitempty"`
}

// Names of steps.
const (
	StepRead       = "read"       // the object is read from its source
	StepAccepted   = "accepted"   // it is valid
	StepAddress    = "address"    // it has an address
	StepPlanned    = "planned"    // this node should serve the frontend
	StepBackends   = "backends"   // backends can take flows
	StepProgrammed = "programmed" // the data plane has the frontend as desired
	StepReachable  = "reachable"  // the kernel has a path to the backends
	StepDelivered  = "delivered"  // the DSR agent delivers to backends on this node
	StepAdvertised = "advertised" // a route is advertised
	StepReceived   = "received"   // a peer receives it
	StepHealth     = "health"     // a backend passes its checks
	StepSelected   = "selected"   // it is selected for new flows
	StepTraffic    = "traffic"    // what it has received
	StepOrigins    = "origins"    // a route leads to frontends
	StepRequested  = "requested"  // an Advertisement or a Service requests the route
	StepWithdrawn  = "withdrawn"  // no peer has an old route
	StepInstalled  = "installed"  // a router's kernel has the route
	StepFrontend   = "frontend"   // a frontend matches the flow
	StepPolicy     = "policy"     // source ranges and rate limits allow it
	StepBackend    = "backend"    // a backend is selected
	StepTracked    = "tracked"    // the flow table
	StepForwarded  = "forwarded"  // the packet leaves toward the backend
)

// Steps are the names of all steps.
var Steps = []string{
	StepRead, StepAccepted, StepAddress, StepPlanned, StepBackends, StepProgrammed, StepReachable, StepDelivered, StepAdvertised, StepReceived,
	StepHealth, StepSelected, StepTraffic, StepOrigins, StepRequested, StepWithdrawn, StepInstalled,
	StepFrontend, StepPolicy, StepBackend, StepTracked, StepForwarded,
}

// add appends a step. The first one that is not complete is where the chain stops.
func (c *Chain) add(s Step) {
	if !s.OK && c.StopsAt == "" {
		c.StopsAt = s.Step
	}
	if s.Reason == "" {
		s.Hint = ""
	}
	c.Steps = append(c.Steps, s)
	c.Complete = c.StopsAt == ""
}

// stop returns the first step that is not complete, or nil.
func (c Chain) stop() *Step {
	for i := range c.Steps {
		if !c.Steps[i].OK {
			return &c.Steps[i]
		}
	}
	return nil
}

// lines summarizes a chain.
func (c Chain) lines() []string {
	name := c.Kind + " " + c.Name
	s := c.stop()
	if s == nil {
		lines := []string{name + ": complete"}
		for _, w := range c.Steps {
			if w.Reason != "" {
				lines[0] = name + ": complete, with warnings"
			}
		}
		return lines
	}
	lines := []string{fmt.Sprintf("%s stops at %q, %s: %s", name, s.Step, s.Object, s.Reason)}
	if s.Hint != "" {
		lines = append(lines, "fix: "+s.Hint)
	}
	return lines
}

// mark is the state of a step for people.
func (c Chain) mark(i int, stopped bool) string {
	switch s := c.Steps[i]; {
	case s.OK && s.Reason == "":
		return "ok"
	case s.OK:
		return "warning"
	case !stopped:
		return "STOPS"
	}
	return "no"
}

// View shows chains: a line for each, and a table of all steps.
func View(chains []Chain) status.View {
	v := status.Sheet{Value: chains, Head: []string{"STATE", "STEP", "OBJECT", "SOURCE", "DESIRED", "PROGRAMMED", "REASON"}}
	for _, c := range chains {
		v.Lines = append(v.Lines, c.lines()...)
		stopped := false
		for i, s := range c.Steps {
			v.Rows = append(v.Rows, []string{c.mark(i, stopped), s.Step, s.Object, s.Source, s.Desired, s.Programmed, s.Reason})
			stopped = stopped || !s.OK
		}
	}
	return v
}

// most limits how many objects a step names.
const most = 3

// some joins the first of many words.
func some(words []string, sep string) string {
	if more := len(words) - most; more > 0 {
		return fmt.Sprintf("%s%sand %d more", strings.Join(words[:most], sep), sep, more)
	}
	return strings.Join(words, sep)
}

// count returns "1 backend" or "2 backends".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
