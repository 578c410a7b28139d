package ecmp

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/topology"
)

// bfdUsual is the default duration during which no session may be declared down.
const bfdUsual = 10 * time.Minute

// bfd keeps every CPU busy, and counts the sessions that end although nothing fails.
func bfd(ctx context.Context, o Options, r *bench.Report) (err error) {
	s, err := o.newSystem(ctx, "bfd", cluster.RouterFairlead, topology.Options{TwoReflectors: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.bringUp(ctx, o.Most); err != nil {
		return err
	}
	if err := s.sessionsUp(ctx); err != nil {
		return err
	}
	if err := bench.Pause(ctx, outage); err != nil {
		return err
	}
	rest := burn(runtime.NumCPU())
	defer rest()
	q := &quiet{system: s, sides: map[string][]string{"balancers": nil, "router": {topology.Router}, "reflectors": s.Reflectors()}, began: time.Now()}
	for _, pod := range s.Balancers(mainService) {
		q.sides["balancers"] = append(q.sides["balancers"], pod.Name)
	}
	if q.before, err = q.count(ctx); err != nil {
		return err
	}
	q.now = q.before
	err = q.last(ctx, o.long(bfdUsual), func() { o.save(r, q.rows()) })
	r.Rows = append(r.Rows, q.rows()...)
	r.Note("bfd: 3 x 300 ms, for %s of %s; %d balancers and a router with two reflectors each; %d threads only count, and BGP processes have priority over them (nice -15), as they should on a node",
		time.Since(q.began).Round(time.Second), o.long(bfdUsual), o.Most, runtime.NumCPU())
	return err
}

// quiet is a system in which nothing should happen.
type quiet struct {
	*system
	sides       map[string][]string // the processes of each side
	began       time.Time
	before, now alarms
}

// alarms counts what has happened up to a point in time.
type alarms struct {
	ended, changes float64
	by             map[string]float64 // sessions that a side declared down
}

// last lets the system run for the duration long, and reports progress every progressInterval.
func (q *quiet) last(ctx context.Context, long time.Duration, report func()) error {
	for reported := q.began; time.Since(q.began) < long; {
		if err := errors.Join(bench.Pause(ctx, time.Second), q.FailedProcess()); err != nil {
			return err
		}
		now, err := q.count(ctx)
		if err != nil {
			return err
		}
		q.now = now
		if time.Since(reported) > progressInterval {
			reported = time.Now()
			q.o.logf("bfd: %d of %d s, %.0f sessions ended", int(time.Since(q.began).Seconds()), int(long.Seconds()), now.ended-q.before.ended)
			report()
		}
	}
	return nil
}

func (q *quiet) count(ctx context.Context) (alarms, error) {
	a := alarms{changes: float64(q.watch.changes.Load()), by: map[string]float64{}}
	for side, hosts := range q.sides {
		for _, host := range hosts {
			a.by[side] += q.silences(host)
		}
	}
	ended, err := q.flaps(ctx)
	a.ended = float64(ended)
	return a, err
}

func (q *quiet) rows() []bench.Row {
	rows := []bench.Row{
		bench.Plain("bfd: duration", "s", time.Since(q.began).Seconds()),
		count("bfd: sessions that ended with every processor busy", "sessions", q.now.ended-q.before.ended).AtMost(0),
		count("bfd: changes of the router's route", "changes", q.now.changes-q.before.changes).AtMost(0),
	}
	for _, side := range slices.Sorted(maps.Keys(q.sides)) {
		rows = append(rows, count("bfd: peers that "+side+" declared down", "sessions", q.now.by[side]-q.before.by[side]).AtMost(0))
	}
	return rows
}

// silences counts, from a process's log, how often it ended a session because BFD
// received nothing.
func (s *system) silences(host string) (n float64) {
	text, _ := os.ReadFile(s.LogFile(host)) // a process that logged nothing has no file
	for line := range bytes.Lines(text) {
		if bytes.Contains(line, []byte("BGP session ended")) && bytes.Contains(line, []byte("BFD is down: nothing received")) {
			n++
		}
	}
	return n
}

// count returns a row with a single number.
func count(name, unit string, n float64) bench.Row { return bench.Plain(name, unit, n) }

// burn keeps the given number of CPUs busy until rest is called.
func burn(threads int) (rest func()) {
	quit := make(chan struct{})
	var burning sync.WaitGroup
	for range threads {
		burning.Go(func() {
			runtime.LockOSThread()
			for n := 0; ; n++ {
				if n%(1<<20) != 0 {
					continue
				}
				select {
				case <-quit:
					return
				default:
				}
			}
		})
	}
	return func() { close(quit); burning.Wait() }
}
