package services

import (
	"math"
	"slices"
	"time"
)

// Outcome is the result of a Config.
type Outcome struct {
	// Delays contains the time from each change until each simulated node has it, sorted.
	Delays []time.Duration
	// Requests is the number of the controller's requests. Passes and Entries are the
	// number of passes of a node and the entries that they wrote, on average.
	Requests        int
	Passes, Entries float64
	// Last is the time at which the last node had the last change. Changes start at 0 or
	// later.
	Last time.Duration
	// Processor is a node's CPU time, on average.
	Processor time.Duration
}

// Quantile returns a quantile of the delays.
func (o *Outcome) Quantile(p float64) time.Duration {
	i := int(math.Ceil(float64(p*float64(len(o.Delays))))) - 1
	return o.Delays[min(max(i, 0), len(o.Delays)-1)]
}

// Run simulates the cluster.
func (c *Config) Run() (*Outcome, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	all := c.writes(c.changes())
	o := &Outcome{Requests: len(all)}
	if len(all) == 0 {
		o.Delays = []time.Duration{0}
		return o, nil
	}
	sample := min(c.Sample, c.watches())
	for i := range sample {
		a := c.node(all, c.notified(all, (2*i+1)*c.watches()/(2*sample)))
		o.Passes += float64(a.passes) / float64(sample)
		o.Entries += float64(a.entries) / float64(sample)
		o.Processor += time.Duration(a.busy) / time.Duration(sample)
		for k, w := range all {
			for _, since := range w.since {
				o.Delays = append(o.Delays, time.Duration(a.done[k]-since))
			}
			o.Last = max(o.Last, time.Duration(a.done[k]))
		}
	}
	slices.Sort(o.Delays)
	return o, nil
}

// Part is a part that can be overloaded.
type Part struct {
	Name string
	// Most is its maximum rate of changes per second, each of a different Service.
	Most float64
}

// Parts calculates the limits of all parts.
func (c *Config) Parts() []Part {
	per := func(work time.Duration) float64 { return 1 / max(work.Seconds(), 1e-12) }
	requests := float64(c.Workers) * per(c.Write)
	if c.QPS > 0 {
		requests = min(requests, c.QPS)
	}
	event := float64(c.Event) + float64(float64(c.watches())*float64(c.Watch))
	// The share of one CPU that periodic full comparisons leave for other work.
	left := 1.0
	if c.Resync > 0 {
		left = max(0, 1-c.Compare.Seconds()*float64(c.Services)/c.Resync.Seconds())
	}
	return []Part{
		{"controller's requests", requests},
		{"API servers' processors", float64(c.Cores) * per(time.Duration(event))},
		{"API servers' network", c.Bandwidth / (8 * float64(c.Bytes) * float64(c.watches()))},
		{"a node's agent", left * per(c.Decode+c.Entry)},
	}
}
