// Package importer turns what other load balancers are told into manifests of
// Fairlead's, and names whatever has no counterpart, with file, line and mend.
// The packages below read one format each (keepalived, ipvsadm, metallb). All
// are pure: bytes in, manifests and losses out; opening files is for the
// caller. What comes out has been read by source/manifest without a word.
package importer

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/source"
	"github.com/fairlead/fairlead/source/manifest"
)

// At is a place in the input.
type At struct {
	File string `json:"file"`
	Line int    `json:"line"`
}

// String gives "file:line".
func (a At) String() string { return fmt.Sprintf("%s:%d", a.File, a.Line) }

// Loss is something in the input that the manifests do not say.
type Loss struct {
	At
	// Service is the one of the manifests that lacks it, where it is one's.
	Service string `json:"service,omitempty"`
	What    string `json:"what"`
	Why     string `json:"why"`
	Mend    string `json:"mend"`
}

// String gives "file:line: what: why; mend".
func (l Loss) String() string {
	s := fmt.Sprintf("%s: %s: %s", l.At, l.What, l.Why)
	if l.Mend != "" {
		s += "; " + l.Mend
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
	// Name is the Service's, unique among a Result's where it is alone: it
	// may name a file.
	Name string
	At   At
	// Objects are the YAML documents, the Service first.
	Objects [][]byte
}

// Result is what an input comes to.
type Result struct {
	Manifests []Manifest
	// Routing are an object each that is no Service: BGPPeers, Announcements and
	// AddressPools.
	Routing []Manifest
	// Losses are in the order of the input.
	Losses []Loss
	// Agent are the flags by which a balancer's agent is told what stands in
	// no manifest.
	Agent []string
}

// Lose notes losses.
func (r *Result) Lose(losses ...Loss) { r.Losses = append(r.Losses, losses...) }

// Sort puts losses in the order of the input; files come as they first came.
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

// Check reads a manifest as an agent does. It says whether the Service is
// taken, and what an agent would say about it.
func (m Manifest) Check() (taken bool, losses []Loss) {
	snapshot, losses := m.read()
	return len(snapshot.Services) == 1, losses
}

// CheckRouting does so of an object that is no Service.
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
