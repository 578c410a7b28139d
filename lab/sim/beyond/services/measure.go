package services

import (
	"math"
	"slices"
	"time"
)

// Outcome is what came of a Config.
type Outcome struct {
	// Delays are from each change until each simulated node has it, sorted.
	Delays []time.Duration
	// Requests are the controller's, Passes and Entries those of a node, on the
	// mean, that wrote, and what they wrote.
	Requests        int
	Passes, Entries float64
	// Last is when the last node had the last change; the first was at 0 or later.
	Last time.Duration
	// Processor is a node's time, on the mean.
	Processor time.Duration
}

// Quantile gives that of the delays.
func (o *Outcome) Quantile(p float64) time.Duration {
	i := int(math.Ceil(float64(p*float64(len(o.Delays))))) - 1
	return o.Delays[min(max(i, 0), len(o.Delays)-1)]
}

// Run simulates it.
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
		a := c.node(all, c.told(all, (2*i+1)*c.watches()/(2*sample)))
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

// Part is what can be too much.
type Part struct {
	Name string
	// Most are the changes a second, each of another Service, that it can do.
	Most float64
}

// Parts gives all, by arithmetic.
func (c *Config) Parts() []Part {
	per := func(work time.Duration) float64 { return 1 / max(work.Seconds(), 1e-12) }
	requests := float64(c.Workers) * per(c.Write)
	if c.QPS > 0 {
		requests = min(requests, c.QPS)
	}
	tell := float64(c.Event) + float64(float64(c.watches())*float64(c.Watch))
	// What is left of one processor when all is compared again and again, and that
	// of a pass each so often.
	left := 1.0
	if c.Resync > 0 {
		left = max(0, 1-c.Compare.Seconds()*float64(c.Services)/c.Resync.Seconds())
	}
	return []Part{
		{"controller's requests", requests},
		{"API servers' processors", float64(c.Cores) * per(time.Duration(tell))},
		{"API servers' network", c.Bandwidth / (8 * float64(c.Bytes) * float64(c.watches()))},
		{"a node's agent", left * per(c.Decode+c.Entry)},
	}
}
