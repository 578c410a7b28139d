// Package capture says what of an XDP program's packets is to be captured, and
// writes what was as pcapng. It knows no kernel: the frames come from
// dataplane/xdp.
package capture

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Options say what is wanted. The zero value wants nothing: set Before, After
// or both.
type Options struct {
	// Interface is where packets come in; empty for all.
	Interface string
	// VIP and Client are addresses at either end of the packet, or of the one
	// inside a tunnel, and Port is one of its ports; zero values for any.
	VIP, Client netip.Addr
	Port        uint16
	// Before and After choose what the program gets and what it makes of it.
	Before, After bool
	// Snaplen is how many bytes of a frame are kept; 0 for all of it, up to MaxSnaplen.
	Snaplen int
	// Sample takes, by chance, one of so many packets; 0 and 1 take all.
	Sample int
	// Count ends the capture after so many packets; 0 does not.
	Count int
}

// MaxSnaplen is the most of a frame that can be kept: what fits into one entry
// of perf's buffer.
const MaxSnaplen = 65000

// Validate says what is wrong with o, by the name of the flag.
func (o Options) Validate() error {
	switch {
	case !o.Before && !o.After:
		return errors.New("before, after: ask for one of them at least")
	case o.Snaplen < 0 || o.Snaplen > MaxSnaplen:
		return fmt.Errorf("snaplen: %d is not between 0 and %d", o.Snaplen, MaxSnaplen)
	case o.Sample < 0:
		return fmt.Errorf("sample: %d is below 0", o.Sample)
	case o.Count < 0:
		return fmt.Errorf("count: %d is below 0", o.Count)
	}
	return nil
}

// Verdict is what the program decided.
type Verdict uint32

func (v Verdict) String() string {
	names := []string{"XDP_ABORTED", "XDP_DROP", "XDP_PASS", "XDP_TX", "XDP_REDIRECT"}
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("verdict %d", uint32(v))
}

// Frame is one frame, before or after.
type Frame struct {
	Time time.Time
	// CPU and Number are the same for a packet before and after.
	CPU       int
	Number    uint64
	Interface int // index, of the one it came in by
	Length    int // of the frame, of which Data is the beginning
	After     bool
	Verdict   Verdict // where it is After
	Data      []byte
}

// Source is where frames come from. Next waits until ctx ends, whose error it
// then gives; Lost are those that came faster than they were fetched.
type Source interface {
	Next(ctx context.Context) (Frame, error)
	Lost() uint64
}
