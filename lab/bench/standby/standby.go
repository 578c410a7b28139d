// Package standby compares two ways to have redundant load balancers: active/standby on a
// layer 2 segment, where one of them owns a VIP as with VRRP, and ECMP, where a router uses
// all of them. It measures throughput, and how long flows are interrupted when a load
// balancer fails.
package standby

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"time"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/sandbox"
	"github.com/fairlead/fairlead/lab/throughput"
)

// The ways.
const (
	Standby = "active/standby"
	ECMP    = "ECMP"
)

// Options configures a run.
type Options struct {
	// Binary is the fairlead binary to run in the lab.
	Binary string
	// Balancers is the number of load balancers, Rate the limit of each one's link for
	// packets to VIPs, in Mbit/s.
	Balancers int
	Rate      uint64
	// Rounds is how often each figure is measured, Window how long the throughput is
	// measured, after as much time to settle.
	Rounds int
	Window time.Duration
	// Progress receives progress messages.
	Progress io.Writer
}

// DefaultOptions returns the options behind the published figures.
func DefaultOptions() Options {
	return Options{Balancers: 3, Rate: 20, Rounds: 3, Window: 4 * time.Second, Progress: io.Discard}
}

// Run measures both ways in turn. It must run in the sandbox.
func Run(ctx context.Context, o Options) (r *bench.Report, err error) {
	r = bench.New("standby")
	n, err := newNetwork(ctx, o)
	if err != nil {
		return r, err
	}
	rates, gaps := map[string][]float64{}, map[string][]float64{}
	err = n.measure(ctx, rates, gaps)
	if err = errors.Join(err, n.close()); err != nil {
		return r, err
	}
	for _, way := range []string{Standby, ECMP} {
		r.Rows = append(r.Rows, bench.Plain(way+": throughput", "Mbit/s", rates[way]...), bench.Plain(way+": longest interruption of a flow", "ms", gaps[way]...))
	}
	r.Note("standby: %d load balancers with links of %d Mbit/s; %d TCP connections; the interruption is of %d UDP flows with a datagram every %s, while the link of the owner of the VIP is cut; the other VIP uses the same load balancers", o.Balancers, o.Rate, connections, probes, probeEvery)
	if left := sandbox.Leftovers(); len(left) > 0 {
		return r, fmt.Errorf("not cleaned up: %v", left)
	}
	return r, nil
}

func (n *network) measure(ctx context.Context, rates, gaps map[string][]float64) error {
	for i := range n.o.Rounds {
		for _, way := range []string{Standby, ECMP} {
			mbits, err := n.throughput(ctx, vips[way])
			if err != nil {
				return err
			}
			rates[way] = append(rates[way], mbits)
			fmt.Fprintf(n.o.Progress, "standby, round %d of %d: %s: %.1f Mbit/s\n", i+1, n.o.Rounds, way, mbits)
		}
		longest, err := n.fail(ctx)
		if err != nil {
			return err
		}
		for way, gap := range longest {
			gaps[way] = append(gaps[way], float64(gap.Microseconds())/1000)
			fmt.Fprintf(n.o.Progress, "standby, round %d of %d: %s: interrupted for %s\n", i+1, n.o.Rounds, way, gap)
		}
	}
	return nil
}

// connections is the number of connections that fill the links.
const connections = 32

// throughput returns the rate at which the backends receive bytes through a VIP.
func (n *network) throughput(ctx context.Context, vip netip.Addr) (mbits float64, err error) {
	ctx, stop := context.WithCancel(ctx)
	var sending sync.WaitGroup
	defer sending.Wait()
	defer stop()
	sending.Go(func() { throughput.TCP(ctx, n.lab.Host("client"), netip.AddrPortFrom(vip, sinkPort), connections) })
	received := func() (bytes uint64) {
		for _, s := range n.sinks {
			tcp, _ := s.Received()
			bytes += tcp
		}
		return bytes
	}
	if err := bench.Pause(ctx, n.o.Window); err != nil {
		return 0, err
	}
	began, before := time.Now(), received()
	if err := bench.Pause(ctx, n.o.Window); err != nil {
		return 0, err
	}
	return float64(received()-before) * 8 / 1e6 / time.Since(began).Seconds(), nil
}

const (
	// probes is the number of flows to each VIP.
	probes     = 32
	probeEvery = 20 * time.Millisecond
	// outage is how long the link stays cut.
	outage = 4 * time.Second
)

// fail cuts the link of the load balancer that owns the VIP on the segment, and returns
// the longest interruption of a flow to each VIP.
func (n *network) fail(ctx context.Context) (longest map[string]time.Duration, err error) {
	owner, err := n.owner(ctx)
	if err != nil {
		return nil, err
	}
	probing, stop := context.WithCancel(ctx)
	defer stop()
	gaps := map[string]func() (time.Duration, error){}
	for way, vip := range vips {
		if gaps[way], err = n.probe(probing, netip.AddrPortFrom(vip, echoPort)); err != nil {
			return nil, err
		}
	}
	err = errors.Join(bench.Pause(ctx, outage/4), n.lab.Cut(owner, "eth0"), bench.Pause(ctx, outage))
	stop()
	longest = map[string]time.Duration{}
	for way, gap := range gaps {
		var failed error
		longest[way], failed = gap()
		err = errors.Join(err, failed)
	}
	return longest, errors.Join(err, n.lab.Restore(owner, "eth0"), n.ready(ctx))
}
