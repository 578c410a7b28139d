package ecmp

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/paper"
)

// bfdUsual is how long nothing may be taken for dead.
const bfdUsual = 10 * time.Minute

// bfd has every processor busy, and counts the sessions that end though nothing
// fails.
func bfd(ctx context.Context, o Options, r *Result) (err error) {
	s, err := o.newSystem(ctx, "bfd", cluster.RouterFairlead, paper.Options{TwoReflectors: true})
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
	if err := pause(ctx, outage); err != nil {
		return err
	}
	rest := burn(runtime.NumCPU())
	defer rest()
	before, err := s.flaps(ctx)
	if err != nil {
		return err
	}
	changes, began, ended := s.watch.changes.Load(), time.Now(), uint64(0)
	for told := began; time.Since(began) < o.long(bfdUsual); {
		if err := errors.Join(pause(ctx, time.Second), s.FailedProcess()); err != nil {
			return err
		}
		if ended, err = s.flaps(ctx); err != nil {
			return err
		}
		ended -= before
		if time.Since(told) > tellEvery {
			told = time.Now()
			o.say("bfd: %d of %d s, %d sessions ended", int(time.Since(began).Seconds()), int(o.long(bfdUsual).Seconds()), ended)
		}
	}
	r.Rows = append(r.Rows,
		count("bfd: sessions that ended with every processor busy", "sessions", float64(ended)).AtMost(0),
		count("bfd: changes of the router's route meanwhile", "changes", float64(s.watch.changes.Load()-changes)).AtMost(0))
	r.Note("bfd: 3 x 300 ms, for %s; %d balancers and a router with two reflectors each; %d threads do nothing but count, and what speaks BGP goes before them (nice -15), as it should on a node",
		o.long(bfdUsual), o.Most, runtime.NumCPU())
	return nil
}

// count is a row of one number.
func count(name, unit string, n float64) bench.Row { return bench.Plain(name, unit, n) }

// burn keeps so many processors busy until it is told to rest.
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
