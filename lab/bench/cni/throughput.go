package cni

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/bench/transfer"
	"github.com/fairlead/fairlead/lab/cputime"
)

// Pairs of senders and receivers.
const (
	toServer    = "pod to server"
	betweenPods = "pod to pod"
)

// way is one of the measured paths from Daejeon to Busan.
type way struct {
	pair, kind string
	from, to   *transfer.Peer
	target     netip.Addr
}

// ways returns the paths of every kind between pods, and those to the server that differ.
// Traffic of overlay pods to the server leaves the node like HostGW's, masqueraded with
// the node's address, and is left out.
func (n *network) ways() (all []way, err error) {
	server, err := transfer.Start(n.Lab.Host(n.Busan.Server))
	if err != nil {
		return nil, err
	}
	for _, kind := range Kinds {
		from, err := transfer.Start(n.from[kind].host)
		if err != nil {
			return nil, err
		}
		to, err := transfer.Start(n.to[kind].host)
		if err != nil {
			return nil, err
		}
		all = append(all, way{betweenPods, kind, from, to, n.to[kind].addr})
		if kind != VXLAN && kind != TunUDP {
			all = append(all, way{toServer, kind, from, server, n.Busan.ServerAddr})
		}
	}
	return all, nil
}

// setting is the configuration under which the paths are measured.
type setting struct {
	rate     string
	offloads bool
}

func (s setting) String() string {
	text := s.rate
	if s.rate == noRate {
		text = "no limit"
	}
	if !s.offloads {
		text += ", no offloads"
	}
	return text
}

// run is one measurement of a path under a setting.
type run struct {
	// mbits is the rate of acknowledged data in Mbit/s, and samples contains the rate of
	// each tenth of a second.
	mbits   float64
	samples []float64
	// used is in milliseconds per Gbit.
	used        cputime.Usage
	retransmits uint32
}

// runs contains one run of a path per round.
type runs []run

func (all runs) each(of func(run) float64) []float64 {
	figures := make([]float64, len(all))
	for i, r := range all {
		figures[i] = of(r)
	}
	return figures
}

func (all runs) rates() []float64 { return all.each(func(r run) float64 { return r.mbits }) }
func (all runs) cpu() []float64   { return all.each(func(r run) float64 { return r.used.Machine }) }

// measured contains runs by pair and kind.
type measured map[[2]string]runs

const (
	// warmUp gives TCP time to find its rate, and lets the limiter's initial burst pass.
	warmUp      = 200 * time.Millisecond
	sampleEvery = 100 * time.Millisecond
)

// throughput measures every path under every setting.
func throughput(ctx context.Context, o Options, r *bench.Report) (err error) {
	n, err := newNetwork(ctx, o, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	ways, err := n.ways()
	if err != nil {
		return err
	}
	if err := o.background(ctx, r); err != nil {
		return err
	}
	var settings []setting
	for _, rate := range o.Rates {
		settings = append(settings, setting{rate, true})
	}
	for _, rate := range o.Plain {
		settings = append(settings, setting{rate, false})
	}
	all := map[setting]measured{}
	for i, s := range settings {
		o.logf("throughput %d/%d: %s, %d rounds", i+1, len(settings), s, o.Rounds)
		if all[s], err = n.under(ctx, s, ways); err != nil {
			return err
		}
	}
	for _, s := range settings {
		throughputRows(r, s, all[s])
	}
	r.Note("throughput: one TCP connection from Daejeon to Busan; bytes acknowledged in %g s, after %s; spread is the standard deviation of its tenths of seconds over their mean. Hosts are measured in the same rounds",
		o.Seconds, warmUp)
	r.Note("CPU: of the machine (/proc/stat: neither idle nor stolen, including softirq), and softirq only; processes: sender, receiver and tun's forwarders, exact, including packets that the kernel handles on their behalf, excluding ksoftirqd")
	r.Charts = append(r.Charts, drawThroughput(all)...)
	return nil
}

// background notes how busy the machine is before the measurement.
func (o Options) background(ctx context.Context, r *bench.Report) error {
	before, err := cputime.Used()
	if err != nil {
		return err
	}
	if err := bench.Pause(ctx, time.Duration(o.Seconds*float64(time.Second))); err != nil {
		return err
	}
	after, err := cputime.Used()
	if err != nil {
		return err
	}
	busy := 100 * after.Since(before).Machine / float64(runtime.NumCPU()) / o.Seconds
	o.logf("background load before the measurement: %.0f %%", busy)
	r.Note("background load: before the measurement, the machine was %.0f %% busy; this is included in the CPU of the machine", busy)
	return nil
}

// under measures the paths under one setting, one at a time in rotating order.
func (n *network) under(ctx context.Context, s setting, ways []way) (measured, error) {
	rate, err := limit(s.rate)
	if err != nil {
		return nil, err
	}
	if err := n.Limit(uint64(rate)); err != nil {
		return nil, err
	}
	if err := n.offload(s.offloads); err != nil {
		return nil, err
	}
	if !s.offloads {
		ways = slices.DeleteFunc(slices.Clone(ways), func(w way) bool { return w.pair != betweenPods })
	}
	all := measured{}
	for round := range n.o.Rounds {
		for _, w := range turn(ways, round) {
			got, err := n.measure(ctx, w)
			if err != nil {
				return nil, fmt.Errorf("%s, %s, %s: %w", s, w.pair, w.kind, err)
			}
			key := [2]string{w.pair, w.kind}
			all[key] = append(all[key], got)
		}
	}
	for _, w := range ways {
		got := all[[2]string{w.pair, w.kind}]
		n.o.logf("  %-14s %-15s %8.0f Mbit/s %7.1f ms/Gbit", w.pair, w.kind, bench.SpreadOf(got.rates()).Median, bench.SpreadOf(got.cpu()).Median)
	}
	return all, nil
}

// offload turns offloads on or off on the interfaces of all measured pods and hosts.
// Packets from a macvlan are segmented by the host's interface below it, which is also in
// the list.
func (n *network) offload(on bool) error {
	for _, places := range []map[string]place{n.from, n.to} {
		for kind, p := range places {
			if kind == Macvlan {
				continue
			}
			if err := p.host.Offload(podDev, on); err != nil {
				return err
			}
		}
	}
	return n.Lab.Host(n.Busan.Server).Offload(podDev, on)
}

// measure sends over one path and measures it.
func (n *network) measure(ctx context.Context, w way) (got run, err error) {
	if _, err := w.from.Do(transfer.Order{Send: netip.AddrPortFrom(w.target, transfer.SinkPort)}); err != nil {
		return got, err
	}
	defer func() {
		_, stopped := w.from.Do(transfer.Order{Stop: true})
		err = errors.Join(err, stopped)
	}()
	if err := bench.Pause(ctx, n.settle); err != nil {
		return got, err
	}
	pids := []int{w.from.PID(), w.to.PID()}
	if w.kind == TunUDP {
		for _, f := range n.forwarders {
			pids = append(pids, f.PID)
		}
	}
	before, err := cputime.Used(pids...)
	if err != nil {
		return got, err
	}
	first, err := w.from.Do(transfer.Order{Sent: true})
	if err != nil {
		return got, err
	}
	last, long := first, time.Duration(n.o.Seconds*float64(time.Second))
	samples := max(1, int(long/sampleEvery))
	for i := range samples {
		due := long * time.Duration(i+1) / time.Duration(samples)
		if err := bench.Pause(ctx, due-time.Duration(last.At-first.At)); err != nil {
			return got, err
		}
		now, err := w.from.Do(transfer.Order{Sent: true})
		if err != nil {
			return got, err
		}
		got.samples = append(got.samples, mbits(last, now))
		last = now
	}
	after, err := cputime.Used(pids...)
	if err != nil {
		return got, err
	}
	got.mbits, got.retransmits = mbits(first, last), last.Retransmits-first.Retransmits
	if last.Bytes == first.Bytes {
		return got, fmt.Errorf("no data was acknowledged in %g s", n.o.Seconds)
	}
	got.used = perGbit(after.Since(before), float64(last.Bytes-first.Bytes)*8/1e9)
	return got, nil
}

func mbits(from, to transfer.Answer) float64 {
	return float64(to.Bytes-from.Bytes) * 8e3 / float64(to.At-from.At)
}

// perGbit converts seconds to milliseconds per Gbit.
func perGbit(u cputime.Usage, gbits float64) cputime.Usage {
	return cputime.Usage{Machine: 1e3 * u.Machine / gbits, Softirq: 1e3 * u.Softirq / gbits, Processes: 1e3 * u.Processes / gbits}
}

// spread returns the standard deviation of a run's samples, in percent of their mean.
func (r run) spread() float64 {
	sum, squares := 0.0, 0.0
	for _, x := range r.samples {
		sum += x
	}
	mean := sum / float64(len(r.samples))
	for _, x := range r.samples {
		squares += (x - mean) * (x - mean)
	}
	return 100 * math.Sqrt(squares/float64(len(r.samples))) / mean
}
