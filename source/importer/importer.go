// Package importer converts the configuration of other load balancers to Fairlead
// manifests, and reports settings that have no counterpart, with file, line and fix. The
// packages below it read one format each (keepalived, ipvsadm, metallb). All are pure:
// bytes in, manifests and losses out; the caller opens files. source/manifest accepts the
// results without problems.
package importer

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/source"
	"github.com/fairlead/fairlead/source/manifest"
)

// At is a position in the input.
type At struct {
	File string `json:"file"`
	Line int    `json:"line"`
}

// String returns "file:line".
func (a At) String() string { return fmt.Sprintf("%s:%d", a.File, a.Line) }

// Loss is something in the input that the manifests do not express.
type Loss struct {
	At
	// Service is the Service of the manifests that lacks it, if it is specific to one.
	Service string `json:"service,omitempty"`
	What    string `json:"what"`
	Why     string `json:"why"`
	Fix     string `json:"fix"`
}

// String returns "file:line: what: why; fix".
func (l Loss) String() string {
	s := fmt.Sprintf("%s: %s: %s", l.At, l.What, l.Why)
	if l.Fix != "" {
		s += "; " + l.Fix
	}
	return s
}

// SyntaxError is why an input cannot be read at all.
type SyntaxError struct {
	At
	Message string
}

func (e *SyntaxError) Error() string { return e.At.String() + ": " + e.Message }

// Manifest is one Service with its EndpointSlices.
type Manifest struct {
	// Name is the Service's name, unique within a Result even without a namespace, so that
	// it may be used as a file name.
	Name string
	At   At
	// Objects are the YAML documents, the Service first.
	Objects [][]byte
}

// Result is the result of an import.
type Result struct {
	Manifests []Manifest
	// Routing has objects that are not Services, one each: BGPPeers, Advertisements and
	// AddressPools.
	Routing []Manifest
	// Losses are in the order of the input.
	Losses []Loss
	// Agent has flags for a balancer's agent that no manifest can express.
	Agent []string
}

// Lose adds losses.
func (r *Result) Lose(losses ...Loss) { r.Losses = append(r.Losses, losses...) }

// Sort sorts losses in the order of the input; files are in the order of their first loss.
func (r *Result) Sort() {
	order := map[string]int{}
	for _, l := range r.Losses {
		if _, known := order[l.File]; !known {
			order[l.File] = len(order)
		}
	}
	slices.SortStableFunc(r.Losses, func(a, b Loss) int {
		return cmp.Or(cmp.Compare(order[a.File], order[b.File]), cmp.Compare(a.Line, b.Line))
	})
	r.Losses = slices.Compact(r.Losses)
}

// Check reads a manifest as an agent does. It reports whether the Service is accepted, and
// the agent's problems.
func (m Manifest) Check() (taken bool, losses []Loss) {
	snapshot, losses := m.read()
	return len(snapshot.Services) == 1, losses
}

// CheckRouting does this for an object that is not a Service.
func (m Manifest) CheckRouting() (taken bool, losses []Loss) {
	_, losses = m.read()
	return len(losses) == 0, losses
}

func (m Manifest) read() (snapshot source.Snapshot, losses []Loss) {
	snapshot = manifest.Read(m.Name+".yaml", m.Text())
	for _, p := range snapshot.Problems {
		why := p.Message
		if p.Field != "" {
			why = p.Field + ": " + why
		}
		losses = append(losses, Loss{At: m.At, Service: m.Name, What: p.Object, Why: why})
	}
	return snapshot, losses
}
