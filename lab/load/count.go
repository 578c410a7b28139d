package load

import (
	"maps"
	"time"
)

// BinLength is the length of a Bin.
const BinLength = 100 * time.Millisecond

// Counts are what happened in a period of time. A request counts when it ends.
type Counts struct {
	// Requests are all that ended, in whatever way.
	Requests uint64 `json:"requests"`
	// Failed are those without a good answer: no connection, no complete answer in time,
	// or a status other than 200.
	Failed uint64 `json:"failed"`
	// BrokenConnections were established and then broke: reset, closed during an answer
	// or without one, or silent for too long.
	BrokenConnections uint64 `json:"brokenConnections"`
	// Connections were opened; Closed were closed by the server properly, between two
	// requests or after an answer that announced it.
	Connections uint64 `json:"connections"`
	Closed      uint64 `json:"closed"`
	// Skipped one-connection requests were due, but not made, because too many were
	// pending.
	Skipped uint64 `json:"skipped"`
	// PerServer counts good answers by the server's own name.
	PerServer map[string]uint64 `json:"perServer"`
	// Reasons count Failed and BrokenConnections by cause.
	Reasons map[string]uint64 `json:"reasons,omitempty"`
	// Latency is that of good answers; for a one-connection request it includes the
	// connection.
	Latency Histogram `json:"-"`
}

// Bin is one interval of the time series.
type Bin struct {
	Requests, Failed, BrokenConnections uint32
	PerServer                           map[string]uint32
	// Slowest is the longest time of a good answer.
	Slowest time.Duration
}

func newCounts() Counts {
	return Counts{PerServer: map[string]uint64{}, Reasons: map[string]uint64{}}
}

func (c *Counts) clone() Counts {
	d := *c
	d.PerServer, d.Reasons = maps.Clone(c.PerServer), maps.Clone(c.Reasons)
	return d
}

// minus returns what happened since o, an earlier copy.
func (c *Counts) minus(o *Counts) Counts {
	return Counts{
		Requests:          c.Requests - o.Requests,
		Failed:            c.Failed - o.Failed,
		BrokenConnections: c.BrokenConnections - o.BrokenConnections,
		Connections:       c.Connections - o.Connections,
		Closed:            c.Closed - o.Closed,
		Skipped:           c.Skipped - o.Skipped,
		PerServer:         difference(c.PerServer, o.PerServer),
		Reasons:           difference(c.Reasons, o.Reasons),
		Latency:           c.Latency.minus(&o.Latency),
	}
}

// difference omits what did not change.
func difference(now, then map[string]uint64) map[string]uint64 {
	d := map[string]uint64{}
	for k, n := range now {
		if n != then[k] {
			d[k] = n - then[k]
		}
	}
	return d
}
