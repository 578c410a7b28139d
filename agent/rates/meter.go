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

// reading is the counters at one moment.
type reading[K comparable] struct {
	at     time.Time
	counts map[K]dataplane.Counts
}

// meter compares the last two readings.
type meter[K comparable] struct{ before, after reading[K] }

// read adds a reading. If the last one was taken before oldest, it is not compared.
func (m *meter[K]) read(now, oldest time.Time, counters func(map[K]dataplane.Counts) error) error {
	m.before, m.after = m.after, m.before
	if m.before.at.Before(oldest) {
		m.before.at = time.Time{}
	}
	if m.after.counts == nil {
		m.after.counts = map[K]dataplane.Counts{}
	}
	clear(m.after.counts)
	m.after.at = now
	err := counters(m.after.counts)
	if err != nil {
		*m = meter[K]{}
	}
	return err
}

// seconds returns the time between the two readings, 0 if there is only one.
func (m *meter[K]) seconds() float64 {
	if m.before.at.IsZero() {
		return 0
	}
	return m.after.at.Sub(m.before.at).Seconds()
}

// rate returns what happened per second between the readings.
func (m *meter[K]) rate(k K) Rate {
	seconds := m.seconds()
	if seconds <= 0 {
		return Rate{}
	}
	before, after := m.before.counts[k], m.after.counts[k]
	if before == after {
		return Rate{}
	}
	return Rate{
		Packets: grown(before.Packets, after.Packets) / seconds,
		Bits:    8 * grown(before.Bytes, after.Bytes) / seconds,
		Flows:   grown(before.Flows, after.Flows) / seconds,
	}
}

// grown returns by how much a counter has grown. One that is smaller than before has
// started again: its object was programmed again.
func grown(before, after uint64) float64 {
	if after < before {
		return float64(after)
	}
	return float64(after - before)
}

// counted returns the Key that has the counters of a backend of a frontend.
func counted(m *meter[backendKey], k service.Key, addr netip.AddrPort) backendKey {
	if own := (backendKey{key: k, addr: addr}); m.has(own) {
		return own
	}
	return backendKey{addr: addr}
}

func (m *meter[K]) has(k K) bool {
	_, ok := m.after.counts[k]
	return ok
}
