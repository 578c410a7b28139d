// Package enforce defines the interface for isolating networks on a node: an Enforcer
// applies the rates, permissions and addresses of a vdn.Plan. Implementations differ in
// what they support (Means); one test suite, conformance, covers all of them. Package vdn
// computes plans, and vdn/node applies them.
package enforce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/vdn"
)

// Enforcer enforces plans in the network namespace where it was opened. Its methods are
// safe for concurrent use.
type Enforcer interface {
	// Means returns what it supports.
	Means() Means
	// Degraded lists the features it runs without because the kernel rejects them.
	Degraded() []string
	// Apply makes this plan the only one in force, whatever was there before: a previous
	// plan, the state of a previous process, or external changes. It enforces as much as it
	// can, and its error names everything that it cannot; errors.Is(err, ErrUnable) if that
	// is permanent. State that is already correct is not touched.
	Apply(ctx context.Context, p vdn.Plan) error
	// Counters returns the counts since a slice or attachment exists, including those of
	// previous processes.
	Counters(ctx context.Context) ([]vdn.Counter, error)
	// Close releases resources; enforcement stays in force.
	Close() error
	// Remove removes all enforcement and closes.
	Remove() error
}

// Means describes what an Enforcer supports.
type Means struct {
	// Name is "kernel" or "openvswitch".
	Name string
	// Guarantee: a slice gets its rate however busy others are. Cap: nobody exceeds the
	// maximum rate. Access: traffic between networks is restricted. Spoof: pods cannot send
	// from addresses that they do not own. Errors: ICMP errors from outside reach pods that
	// may send the packets they refer to.
	Guarantee, Cap, Access, Spoof, Errors bool
	// Notes describe its limitations.
	Notes []string
}

// ErrUnable is wrapped in Apply's error for what an Enforcer does not support.
var ErrUnable = errors.New("not supported by this enforcer")

// Unable names everything in a plan that the Enforcer does not support.
func (m Means) Unable(p vdn.Plan) error {
	var what []string
	for _, s := range p.Slices {
		if s.GuaranteedRate > 0 && !m.Guarantee {
			what = append(what, fmt.Sprintf("network %s: guarantee %s", s.Name, s.GuaranteedRate))
		}
	}
	if what == nil {
		return nil
	}
	return fmt.Errorf("%s: %w (%s does not support guarantees): remove guaranteedRate, or use --enforcer kernel",
		strings.Join(what, "; "), ErrUnable, m.Name)
}

// AttachmentError is an attachment that Apply could not enforce; Apply may return several.
type AttachmentError struct {
	ID  string
	Err error
}

func (e *AttachmentError) Error() string { return "attachment " + e.ID + ": " + e.Err.Error() }

// Unwrap returns Err.
func (e *AttachmentError) Unwrap() error { return e.Err }

// Failed returns the attachments that an error of Apply names.
func Failed(err error) map[string]error {
	found := map[string]error{}
	gather(err, found)
	return found
}

func gather(err error, found map[string]error) {
	switch e := err.(type) {
	case *AttachmentError:
		found[e.ID] = e
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			gather(one, found)
		}
	case interface{ Unwrap() error }:
		gather(e.Unwrap(), found)
	}
}

// Reasons for dropped packets, as in vdn.Counter.
const (
	OverRate = "over-rate"
	Isolated = "isolated"
	Outside  = "outside"
	Spoofed  = "spoofed"
	// Bypassed: sent past the programs at the pod's device.
	Bypassed = "bypassed"
)

// Reach returns the pairs of slices that may communicate, in both directions: those that
// name each other.
func Reach(slices []vdn.Slice) map[[2]uint16]bool {
	named := map[[2]uint16]bool{}
	for _, s := range slices {
		for _, to := range s.PeerNetworks {
			named[[2]uint16{s.ID, to}] = true
		}
	}
	pairs := map[[2]uint16]bool{}
	for pair := range named {
		if named[[2]uint16{pair[1], pair[0]}] {
			pairs[pair] = true
		}
	}
	return pairs
}

// ByName indexes slices by network name.
func ByName(slices []vdn.Slice) map[string]vdn.Slice {
	all := map[string]vdn.Slice{}
	for _, s := range slices {
		all[s.Name] = s
	}
	return all
}

// AddDrops adds dropped packets for a reason, if there are any.
func AddDrops(c vdn.Counter, reason string, n uint64) {
	if n > 0 {
		c.Drops[reason] += n
	}
}

// Sort orders counters by network, attachment and device.
func Sort(all []vdn.Counter) {
	slices.SortFunc(all, func(a, b vdn.Counter) int {
		return cmp.Or(cmp.Compare(a.Network, b.Network), cmp.Compare(a.Attachment, b.Attachment), cmp.Compare(a.Device, b.Device))
	})
}
