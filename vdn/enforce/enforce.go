// Package enforce is the door to what keeps networks apart on a node: rates,
// rights and addresses of a vdn.Plan, in force. What stands behind it and what
// that can do differs (Means); one suite, conformance, holds all to it. What a plan
// says is decided elsewhere (vdn), and who brings it is vdn/node.
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

// Enforcer enforces plans in the network namespace where it was opened. Its
// methods may be called from any goroutine.
type Enforcer interface {
	// Means tells what it can do.
	Means() Means
	// Degraded lists, in words, what it does without because the kernel refuses it.
	Degraded() []string
	// Apply makes exactly this plan hold, whatever was there: of a plan before, of a
	// process before, or changed by somebody. It enforces what it can, and its
	// error names all that it cannot: errors.Is(err, ErrUnable) where that is for
	// good. What holds already is not touched.
	Apply(ctx context.Context, p vdn.Plan) error
	// Counters gives what was counted since a slice or attachment is there, also by
	// a process before.
	Counters(ctx context.Context) ([]vdn.Counter, error)
	// Close lets go; what is enforced stays.
	Close() error
	// Remove takes all off and closes.
	Remove() error
}

// Means is what an Enforcer can do.
type Means struct {
	// Name is "kernel" or "openvswitch".
	Name string
	// Guarantee: a slice gets its rate however busy others are. Cap: nobody gets
	// more than allowed. Access: who talks to whom. Spoof: nobody sends from an
	// address that is not its own. Errors: those of ICMP from outside come to who may
	// send what they are about.
	Guarantee, Cap, Access, Spoof, Errors bool
	// Notes are its limits, in words.
	Notes []string
}

// ErrUnable is what Apply answers, wrapped, of what its means cannot do.
var ErrUnable = errors.New("cannot be enforced by these means")

// Unable names all that a plan asks and the means cannot do.
func (m Means) Unable(p vdn.Plan) error {
	var what []string
	for _, s := range p.Slices {
		if s.Guarantee > 0 && !m.Guarantee {
			what = append(what, fmt.Sprintf("network %s: guarantee %s", s.Name, s.Guarantee))
		}
	}
	if what == nil {
		return nil
	}
	return fmt.Errorf("%s: %w (%s caps, but does not guarantee): take the guarantee off, or use means kernel",
		strings.Join(what, "; "), ErrUnable, m.Name)
}

// AttachmentError is what Apply answers, among others, of an attachment that is not
// enforced.
type AttachmentError struct {
	ID  string
	Err error
}

func (e *AttachmentError) Error() string { return "attachment " + e.ID + ": " + e.Err.Error() }

// Unwrap gives Err.
func (e *AttachmentError) Unwrap() error { return e.Err }

// Failed finds the attachments that an error of Apply names.
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

// Reasons why packets are dropped, as in vdn.Counter.
const (
	OverRate = "over-rate"
	Isolated = "isolated"
	Outside  = "outside"
	Spoofed  = "spoofed"
	// Bypassed: sent past the programs at the pod's device.
	Bypassed = "bypassed"
)

// Reach gives the pairs of slices that may talk, both ways: where each names the
// other.
func Reach(slices []vdn.Slice) map[[2]uint16]bool {
	named := map[[2]uint16]bool{}
	for _, s := range slices {
		for _, to := range s.Reach {
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

// ByName finds slices by their networks.
func ByName(slices []vdn.Slice) map[string]vdn.Slice {
	all := map[string]vdn.Slice{}
	for _, s := range slices {
		all[s.Name] = s
	}
	return all
}

// AddDrops counts packets that were dropped for a reason, where there are any.
func AddDrops(c vdn.Counter, reason string, n uint64) {
	if n > 0 {
		c.Drops[reason] += n
	}
}

// Sort puts counters in their order: by network, attachment and device.
func Sort(all []vdn.Counter) {
	slices.SortFunc(all, func(a, b vdn.Counter) int {
		return cmp.Or(cmp.Compare(a.Network, b.Network), cmp.Compare(a.Attachment, b.Attachment), cmp.Compare(a.Device, b.Device))
	})
}
