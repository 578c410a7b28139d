package synflood

import (
	"maps"
	"time"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/dataplane/internal/clock"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
)

const (
	// pressureEvery is the interval of checks for pressure.
	pressureEvery = 250 * time.Millisecond
	// forgetAfter is how long a frontend without new connections is remembered: at
	// service.LeastSYNThreshold it is noted more than twice in that time.
	forgetAfter = time.Minute
)

// Frontends are a data plane's, for a Watch. They may be called from any goroutine.
type Frontends interface {
	// Automatic appends the frontends to protect while they are under pressure to all.
	Automatic(all []Frontend) []Frontend
	// Openings counts a frontend's packets that open a connection, and all packets.
	Openings(id uint32) (syns, packets uint64, err error)
	// Table returns how many flows are opening, and how many fit into the flow table.
	Table() (opening, capacity int)
	// Prepare makes Protect possible. An error is reported to users until it works again.
	Prepare() error
	// Protect makes traffic see a frontend's state, if it still exists.
	Protect(id uint32, guarded, checked bool) error
}

// Frontend is one of them, by its number.
type Frontend struct {
	ID uint32
	// Guarded and Checked are its state, possibly from a predecessor.
	Guarded, Checked bool
	// UsesTable reports that it tracks flows.
	UsesTable bool
}

// Watch checks for pressure, in one goroutine.
type Watch struct {
	frontends  Frontends
	notes      *ebpf.Map // syn_hot: frontends with many new connections
	threshold  float64
	all        []Frontend // memory for the next check
	hot        []uint32   // by CPU: number of notes already read
	state      map[uint32]*watched
	table      bool
	stop, done chan struct{}
}

// watched is a frontend being checked.
type watched struct {
	pressure
	before sampled
}

// sampled are counters at one time.
type sampled struct {
	at            time.Duration
	syns, packets uint64
}

// Start checks for pressure until Close. threshold is the rate of new connections per second
// above which a frontend may be under pressure.
func Start(frontends Frontends, notes *ebpf.Map, threshold float64) *Watch {
	w := &Watch{
		frontends: frontends, notes: notes, threshold: threshold, state: map[uint32]*watched{},
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	go w.run()
	return w
}

func (w *Watch) run() {
	defer close(w.done)
	tick := time.NewTicker(pressureEvery)
	defer tick.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-tick.C:
			w.look(clock.Now())
		}
	}
}

// Close ends it, if it is not nil.
func (w *Watch) Close() {
	if w == nil {
		return
	}
	close(w.stop)
	<-w.done
}

// look checks the frontends that may be under pressure, and changes those that are.
func (w *Watch) look(now time.Duration) {
	w.all = w.frontends.Automatic(w.all[:0])
	suspects := w.suspects()
	if len(suspects) == 0 || w.frontends.Prepare() != nil {
		return
	}
	for _, f := range w.all {
		if suspects[f.ID] {
			w.lookAt(f, now)
		}
	}
	maps.DeleteFunc(w.state, func(_ uint32, s *watched) bool { return s.idle() && now-s.before.at > forgetAfter })
}

// suspects are the frontends, by number, with many new connections since the last check,
// and those checked then.
func (w *Watch) suspects() map[uint32]bool {
	found := map[uint32]bool{}
	for id, s := range w.state {
		if !s.idle() {
			found[id] = true
		}
	}
	if !w.readNotes(found) {
		return nil // closed
	}
	opening, capacity := w.frontends.Table()
	w.table = tableUnderPressure(w.table, opening, capacity)
	for _, f := range w.all {
		// Left under pressure by a predecessor, or using a table under pressure.
		if f.Guarded || f.Checked || w.table && f.UsesTable {
			found[f.ID] = true
		}
	}
	return found
}

// readNotes adds the frontends noted since the last call.
func (w *Watch) readNotes(found map[uint32]bool) (ok bool) {
	var perCPU []bpf.BalancerSynHot
	if w.notes.Lookup(uint32(0), &perCPU) != nil {
		return false
	}
	if w.hot == nil {
		w.hot = make([]uint32, len(perCPU))
		for i := range perCPU {
			w.hot[i] = perCPU[i].N
		}
	}
	for i, hot := range perCPU {
		n := min(hot.N-w.hot[i], uint32(len(hot.Frontend)))
		for j := range n {
			found[hot.Frontend[(hot.N-1-j)%uint32(len(hot.Frontend))]] = true
		}
		w.hot[i] = hot.N
	}
	return true
}

// lookAt compares a frontend's counters with those of the last check.
func (w *Watch) lookAt(f Frontend, now time.Duration) {
	syns, packets, err := w.frontends.Openings(f.ID)
	if err != nil {
		return // closed
	}
	sample := sampled{now, syns, packets}
	s := w.state[f.ID]
	if s == nil {
		s = &watched{pressure: pressure{guarded: f.Guarded, checked: f.Guarded || f.Checked}}
		w.state[f.ID], s.before = s, sample
		if !w.table {
			return
		}
	}
	seen := openings{syns: sample.syns - s.before.syns, packets: sample.packets - s.before.packets, during: now - s.before.at}
	s.before = sample
	before := s.pressure
	if !s.step(seen, w.threshold, w.table && f.UsesTable) {
		return
	}
	if w.frontends.Protect(f.ID, s.guarded, s.checked) != nil {
		s.pressure = before // retried at the next check
	}
}
