// Package capture defines which packets of an XDP program to capture, and writes them as
// pcapng. It does not use the kernel: the frames come from dataplane/xdp/observe.
package capture

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Options select packets. The zero value selects none: set Before, After or both.
type Options struct {
	// Interface is where packets arrive; empty for all.
	Interface string
	// VIP and Client match the source or destination of the packet, or of the one
	// inside a tunnel, and Port one of its ports. Zero values match any.
	VIP, Client netip.Addr
	Port        uint16
	// Before and After select packets before and after the program.
	Before, After bool
	// Snaplen is how many bytes of a frame are captured; 0 for all, up to MaxSnaplen.
	Snaplen int
	// Sample selects one of this many packets at random; 0 and 1 select all.
	Sample int
	// Count ends the capture after this many packets; 0 for no limit.
	Count int
}

// MaxSnaplen is the maximum captured size of a frame: what fits into one entry of perf's
// buffer.
const MaxSnaplen = 65000

// Validate returns what is wrong with o, by the name of the flag.
func (o Options) Validate() error {
	switch {
	case !o.Before && !o.After:
		return errors.New("before, after: select at least one of them")
	case o.Snaplen < 0 || o.Snaplen > MaxSnaplen:
		return fmt.Errorf("snaplen: %d is not between 0 and %d", o.Snaplen, MaxSnaplen)
	case o.Sample < 0:
		return fmt.Errorf("sample: %d is below 0", o.Sample)
	case o.Count < 0:
		return fmt.Errorf("count: %d is below 0", o.Count)
	}
	return nil
}

// Verdict is the program's decision.
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
	Interface int // index of the ingress interface
	Length    int // of the complete frame
	After     bool
	Verdict   Verdict // if After is set
	Data      []byte
}

// Source returns frames. Next waits until ctx ends, and then returns its error. Lost
// counts frames that arrived faster than they were read.
type Source interface {
	Next(ctx context.Context) (Frame, error)
	Lost() uint64
}
