package ecmp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/topology"
)

// linearGoal is the maximum percentage by which the throughput may differ from that of
// one load balancer times their number.
const linearGoal = 5

const (
	// uploads is the number of uploading connections.
	uploads       = 32
	overTimeUsual = 2 * time.Minute
)

// uploadSettle is how long nothing is measured after a change. Connections that were
// stuck behind a full link retransmit seconds apart, and need several retransmissions to
// notice that their path has changed. The measurement then takes as long as the settling.
func (o Options) uploadSettle() time.Duration { return o.Every }

// throughput is Fig. 13 (a) and (b) of the paper: the throughput of 1 to Most load
// balancers whose links have the same rate limit; the same while their number changes;
// and, without limits, what these CPUs can carry.
func throughput(ctx context.Context, o Options, r *bench.Report) error {
	shaped, err := o.upload(ctx, o.Rate*1e6, r)
	if err != nil {
		return err
	}
	unshaped, err := o.upload(ctx, 0, r)
	if err != nil {
		return err
	}
	for i, all := range [][][]float64{shaped, unshaped} {
		what := []string{fmt.Sprintf("links of %d Mbit/s", o.Rate), "no limits"}[i]
		for n, figures := range all {
			name := fmt.Sprintf("throughput: %s, %d balancers", what, n+1)
			r.Rows = append(r.Rows, bench.Plain(name, "Mbit/s", figures...))
			if i == 0 && n > 0 {
				r.Rows = append(r.Rows, bench.Plain(name+": off a line through one", "%", off(figures, all[0], n+1)...).AtMost(linearGoal))
			}
		}
	}
	r.Note("throughput: %d TCP connections upload through a tunnel; bytes acknowledged by the backends in %s, after %s; without limits all share %s",
		uploads, o.Every, o.uploadSettle(), r.Machine)
	r.Charts = append(r.Charts, drawThroughput(o, shaped, unshaped))
	return nil
}

// off returns by how many percent each round's figure differs from n times that of one
// load balancer.
func off(figures, one []float64, n int) []float64 {
	all := make([]float64, len(figures))
	for i := range figures {
		all[i] = 100 * math.Abs(figures[i]/(one[i]*float64(n))-1)
	}
	return all
}

// upload measures 1 to Most load balancers, Rounds times. If links are limited, it also
// measures while their number changes.
func (o Options) upload(ctx context.Context, rate uint64, r *bench.Report) (rates [][]float64, err error) {
	s, err := o.newSystem(ctx, "throughput", cluster.RouterFairlead, topology.Options{BalancerRate: rate})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.bringUp(ctx, 1); err != nil {
		return nil, err
	}
	u, err := startUpload(ctx, s.Lab.Host(topology.Client).Dial, s.ClientAddrs, s.Services[mainService].VIP, uploads)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, u.stop()) }()
	rates = make([][]float64, o.Most)
	for range o.Rounds {
		for n := range rates {
			if err := s.resize(ctx, n+1); err != nil {
				return rates, err
			}
			if err := bench.Pause(ctx, o.uploadSettle()); err != nil {
				return rates, err
			}
			got, err := u.rate(ctx, o.Every)
			if err != nil {
				return rates, err
			}
			rates[n] = append(rates[n], got)
			o.logf("throughput: %d balancers, %d Mbit/s a link: %.1f Mbit/s", n+1, rate/1e6, got)
		}
	}
	if rate == 0 {
		return rates, nil
	}
	return rates, s.overTime(ctx, u, bench.SpreadOf(rates[0]).Median, r)
}

// rate returns the upload rate over the window from now on, in Mbit/s.
func (u *upload) rate(ctx context.Context, window time.Duration) (float64, error) {
	before, err := u.arrived()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := bench.Pause(ctx, window); err != nil {
		return 0, err
	}
	now, err := u.arrived()
	return float64(now-before) * 8 / 1e6 / time.Since(began).Seconds(), err
}

// resize starts or ends load balancers until there are n.
func (s *system) resize(ctx context.Context, n int) error {
	running := s.Balancers(mainService)
	if more := n - len(running); more > 0 {
		return s.bringUp(ctx, more)
	}
	going := running[:len(running)-n]
	for _, pod := range going {
		s.Forget(pod.Name)
		if err := s.Process(pod.Name).Signal(syscall.SIGTERM); err != nil {
			return err
		}
	}
	if _, err := s.converge(ctx, fmt.Sprintf("%d balancers terminated", len(going)), time.Now()); err != nil {
		return err
	}
	for _, pod := range going {
		if err := s.remove(ctx, pod); err != nil {
			return err
		}
	}
	return nil
}

// sample is the throughput in one second, and the number of load balancers at its end.
type sample struct {
	at        time.Duration
	rate      float64
	balancers int
}

// overTime changes the number of load balancers. For each span without a change, once
// settled, it compares the throughput with that number.
func (s *system) overTime(ctx context.Context, u *upload, one float64, r *bench.Report) error {
	settle := int(s.o.uploadSettle().Seconds())
	random, began, long := rand.New(rand.NewPCG(s.o.Seed, 1)), time.Now(), s.o.long(overTimeUsual)
	var samples []sample
	var differ []float64
	for time.Since(began) < long {
		n := 1 + random.IntN(s.o.Most)
		if err := s.resize(ctx, n); err != nil {
			return err
		}
		span := 0.0
		seconds := settle + max(1, int(s.o.Every.Seconds()))
		for i := range seconds {
			got, err := u.rate(ctx, time.Second)
			if err != nil {
				return err
			}
			samples = append(samples, sample{time.Since(began), got, n})
			if i >= settle {
				span += got / float64(seconds-settle)
			}
		}
		differ = append(differ, off([]float64{span}, []float64{one}, n)...)
		s.o.logf("throughput: %d of %d s, %d balancers: %.1f Mbit/s", int(time.Since(began).Seconds()), int(long.Seconds()), n, span)
	}
	r.Rows = append(r.Rows, bench.Plain("throughput: over time, off the number of balancers times one", "%", differ...).AtMost(linearGoal))
	r.Charts = append(r.Charts, drawOverTime(samples, one))
	return nil
}
