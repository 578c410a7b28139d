package ecmp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/topology"
)

// Goals of the case convergence.
const (
	stopGoal, stopMost   = 100 * time.Millisecond, time.Second
	startGoal, startMost = time.Second, 2 * time.Second
)

// convergence changes the number of running load balancers every few seconds, and
// measures the delay until the router's kernel has exactly these as next hops: Fig. 13
// (c) of the paper.
func convergence(ctx context.Context, o Options, r *bench.Report) error {
	var all []*changing
	for _, router := range o.Routers {
		c, err := o.changeNumber(ctx, router, r)
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("%s: %w", router, err)
		}
		if c != nil {
			r.Rows = append(r.Rows, c.rows()...)
			all = append(all, c)
		}
		if err != nil {
			r.Note("convergence: %s: interrupted after %s", router, time.Since(c.began).Round(time.Second))
			return err
		}
	}
	r.Note("convergence: another number of balancers, 1 to %d, every %s for %s, seed %d; each time is from the first process's start, or the first SIGTERM, until the router's kernel has just the next hops that it should",
		o.Most, o.Every, o.long(convergenceLength), o.Seed)
	r.Charts = append(r.Charts, drawDelays(all))
	return nil
}

// convergenceLength is the default duration of a run.
const convergenceLength = 3 * time.Minute

// changing is a run in which the number of load balancers changes.
type changing struct {
	*system
	router        string
	began         time.Time
	starts, stops delays
	going         sync.WaitGroup // those that are terminating
	mu            sync.Mutex
	failed        error // the error of any of them
}

func (o Options) changeNumber(ctx context.Context, router string, r *bench.Report) (c *changing, err error) {
	s, err := o.newSystem(ctx, "convergence", router, topology.Options{})
	if err != nil {
		return nil, err
	}
	c = &changing{system: s, router: router, began: time.Now()}
	defer func() { err = errors.Join(err, s.close()) }()
	defer c.going.Wait()
	if err := s.bringUp(ctx, 1); err != nil {
		return c, err
	}
	random, reported := rand.New(rand.NewPCG(o.Seed, 0)), time.Now()
	began := reported
	for next := began; time.Since(began) < o.long(convergenceLength) || c.starts.Count() == 0 || c.stops.Count() == 0; {
		next = next.Add(o.Every)
		if err := c.step(ctx, random, next); err != nil {
			return c, err
		}
		if now := time.Now(); now.After(next) {
			next = now // after a slow step, do not catch up
		}
		if time.Since(reported) > progressInterval {
			reported = time.Now()
			c.report(time.Since(began))
			o.save(r, c.rows())
		}
	}
	c.report(time.Since(began))
	return c, nil
}

// rows returns the figures so far.
func (c *changing) rows() (rows []bench.Row) {
	if c.starts.Count() > 0 {
		rows = append(rows, c.starts.rows("convergence: "+c.router+": balancers start", startGoal, startMost)...)
	}
	if c.stops.Count() > 0 {
		rows = append(rows, c.stops.rows("convergence: "+c.router+": balancers stop", stopGoal, stopMost)...)
	}
	return rows
}

// progressInterval is how often progress is printed and the figures so far are saved.
const progressInterval = 20 * time.Second

func (c *changing) report(since time.Duration) {
	c.o.logf("convergence: %s, %d of %d s: %d times balancers started, within %.0f ms (median %.0f), %d times they stopped, within %.1f ms (median %.1f)",
		c.router, int(since.Seconds()), int(c.o.long(convergenceLength).Seconds()),
		c.starts.Count(), ms(c.starts.max), ms(c.starts.quantile(0.5)), c.stops.Count(), ms(c.stops.max), ms(c.stops.quantile(0.5)))
}

// step changes the number of load balancers at a given time, after the previous change is
// complete.
func (c *changing) step(ctx context.Context, random *rand.Rand, at time.Time) error {
	c.going.Wait()
	if err := errors.Join(c.failed, c.FailedProcess()); err != nil {
		return err
	}
	running := c.Balancers(mainService)
	want := 1 + random.IntN(c.o.Most-1)
	if want >= len(running) {
		want++ // a different number than now
	}
	if want < len(running) {
		return c.stop(ctx, at, running[:len(running)-want])
	}
	return c.start(ctx, at, want-len(running))
}

func (c *changing) start(ctx context.Context, at time.Time, n int) error {
	var pods []topology.Pod
	for range n {
		pod, err := c.AddBalancer(ctx, mainService)
		if err != nil {
			return err
		}
		pods = append(pods, pod)
	}
	if err := bench.Pause(ctx, time.Until(at)); err != nil {
		return err
	}
	began := time.Now()
	for _, pod := range pods {
		if err := c.StartBalancer(pod); err != nil {
			return err
		}
	}
	took, err := c.converge(ctx, fmt.Sprintf("%d balancers started", n), began)
	if err == nil {
		c.starts.Add(took)
	}
	return err
}

func (c *changing) stop(ctx context.Context, at time.Time, pods []topology.Pod) error {
	if err := bench.Pause(ctx, time.Until(at)); err != nil {
		return err
	}
	for _, pod := range pods {
		c.Forget(pod.Name)
	}
	began := time.Now()
	for _, pod := range pods {
		if err := c.Process(pod.Name).Signal(syscall.SIGTERM); err != nil {
			return err
		}
	}
	took, err := c.converge(ctx, fmt.Sprintf("%d balancers terminated", len(pods)), began)
	if err != nil {
		return err
	}
	c.stops.Add(took)
	for _, pod := range pods {
		c.going.Go(func() {
			if err := c.remove(ctx, pod); err != nil {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.failed = errors.Join(c.failed, err)
			}
		})
	}
	return nil
}
