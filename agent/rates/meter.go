package rates

import (
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
)

// Cause is a reason for which something drops packets.
type Cause struct{ At, Reason string }

// backendKey is a backend of a frontend; with a zero Key, one that is counted once for
// several, or the sum of those that are not.
type backendKey struct {
	key  service.Key
	addr netip.AddrPort
	sum  bool
}

// meter compares the last two readings of counters. They share one map, because a lookup
// costs more than everything else.
type meter[K comparable] struct {
	// before and after are the times of the readings, zero without one.
	before, after time.Time
	at            map[K]int
	pairs         []pair
	// readings counts them.
	readings uint64
}

// pair is the two readings of a counter.
type pair struct {
	before, after dataplane.Counts
	// reading is the last one that had the counter.
	reading uint64
}

// read adds a reading. If the last one was taken before oldest, it is not compared.
func (m *meter[K]) read(now, oldest time.Time, counters func(add func(K, dataplane.Counts)) error) error {
	m.before, m.after = m.after, now
	if m.before.Before(oldest) {
		*m = meter[K]{after: now, at: map[K]int{}}
	}
	m.readings++
	for i := range m.pairs {
		m.pairs[i].before, m.pairs[i].after = m.pairs[i].after, dataplane.Counts{}
	}
	seen := 0
	err := counters(func(k K, c dataplane.Counts) {
		i, known := m.at[k]
		if !known {
			i = len(m.pairs)
			m.at[k] = i
			m.pairs = append(m.pairs, pair{})
		}
		p := &m.pairs[i]
		if p.reading != m.readings {
			p.reading = m.readings
			seen++
		}
		p.after = sum(p.after, c)
	})
	if err != nil || len(m.pairs) > 2*seen+1000 { // most are of objects that are gone
		*m = meter[K]{}
	}
	return err
}

// seconds returns the time between the two readings, 0 if there is only one.
func (m *meter[K]) seconds() float64 {
	if m.before.IsZero() {
		return 0
	}
	return m.after.Sub(m.before).Seconds()
}

// of returns what happened per second between the readings, and the totals.
func (m *meter[K]) of(k K) (Rate, dataplane.Counts) {
	i, known := m.at[k]
	if !known {
		return Rate{}, dataplane.Counts{}
	}
	p, seconds := &m.pairs[i], m.seconds()
	if seconds <= 0 || p.before == p.after {
		return Rate{}, p.after
	}
	return Rate{
		Packets: grown(p.before.Packets, p.after.Packets) / seconds,
		Bits:    8 * grown(p.before.Bytes, p.after.Bytes) / seconds,
		Flows:   grown(p.before.Flows, p.after.Flows) / seconds,
	}, p.after
}

// has reports whether the last reading had a counter.
func (m *meter[K]) has(k K) bool {
	i, known := m.at[k]
	return known && m.pairs[i].reading == m.readings
}

// grown returns by how much a counter has grown. One that is smaller than before has
// started again: its object was programmed again.
func grown(before, after uint64) float64 {
	if after < before {
		return float64(after)
	}
	return float64(after - before)
}

func sum(a, b dataplane.Counts) dataplane.Counts {
	return dataplane.Counts{Packets: a.Packets + b.Packets, Bytes: a.Bytes + b.Bytes, Flows: a.Flows + b.Flows}
}
