package standby

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// probe sends datagrams on some flows until ctx ends, and returns a function that waits for
// that and returns the longest time without an answer of any flow.
func (n *network) probe(ctx context.Context, to netip.AddrPort) (longest func() (time.Duration, error), err error) {
	gaps := make([]time.Duration, probes)
	errs := make([]error, probes)
	var all sync.WaitGroup
	for i := range probes {
		c, err := n.lab.Host("client").ListenPacket("udp", "192.168.0.2:0")
		if err != nil {
			return nil, err
		}
		all.Go(func() {
			defer c.Close()
			gaps[i], errs[i] = gap(ctx, c, to)
		})
	}
	return func() (time.Duration, error) {
		all.Wait()
		return slices.Max(gaps), errors.Join(errs...)
	}, nil
}

// gap sends a datagram every probeEvery until ctx ends, and returns the longest time
// between two answers, or until the end.
func gap(ctx context.Context, c net.PacketConn, to netip.AddrPort) (longest time.Duration, err error) {
	var sending sync.WaitGroup
	defer sending.Wait()
	sending.Go(func() {
		tick := time.NewTicker(probeEvery)
		defer tick.Stop()
		for ctx.Err() == nil {
			_, _ = c.WriteTo([]byte("?"), net.UDPAddrFromAddrPort(to)) // a datagram that is not sent has no answer
			<-tick.C
		}
		_ = c.SetReadDeadline(time.Unix(1, 0)) // ends the reads below
	})
	first, last, buf := true, time.Now(), make([]byte, 64)
	for {
		_, _, err := c.ReadFrom(buf)
		now := time.Now()
		if !first {
			longest = max(longest, now.Sub(last))
		}
		switch {
		case err == nil:
			first, last = false, now
		case ctx.Err() == nil && !errors.Is(err, net.ErrClosed):
			continue // an ICMP error
		case first:
			return 0, fmt.Errorf("%s never answered", to)
		default:
			return longest, nil
		}
	}
}
