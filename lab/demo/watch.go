package demo

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/lab/load"
)

// watchPace is how often the load balancers are queried.
const watchPace = 250 * time.Millisecond

// watch follows the load balancers' counters while the load runs, including those of
// removed ones, and shows the live view.
type watch struct {
	r    *runner
	end  context.CancelFunc
	done sync.WaitGroup

	mu    sync.Mutex
	last  map[string]counted
	rates []rates
	label string
}

// counted are a load balancer's totals at the last query.
type counted struct{ packets, flows uint64 }

// rates are the packets per second of each load balancer since the previous query.
type rates struct {
	at  time.Duration
	per map[string]float64
}

func (r *runner) startWatch(ctx context.Context) *watch {
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{r: r, end: cancel, last: map[string]counted{}, label: "steady"}
	w.look(ctx)
	w.done.Go(func() {
		tick := time.NewTicker(watchPace)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			w.look(ctx)
			if r.Width > 0 || n%4 == 3 {
				w.show()
			}
		}
	})
	return w
}

func (w *watch) stop() {
	w.end()
	w.done.Wait()
	if w.r.Width > 0 {
		fmt.Fprint(w.r.Out, clearLine)
	}
}

// look queries every load balancer of the main service.
func (w *watch) look(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := rates{at: time.Since(w.r.began), per: map[string]float64{}}
	var since time.Duration = watchPace
	if n := len(w.rates); n > 0 {
		since = now.at - w.rates[n-1].at
	}
	for _, pod := range w.r.cluster.Balancers(mainService) {
		s, err := w.r.cluster.Status(ctx, pod.Name)
		if err != nil {
			continue // it is being added or removed
		}
		c := sum(s)
		if before, known := w.last[pod.Name]; known && c.packets >= before.packets {
			now.per[pod.Name] = float64(c.packets-before.packets) / since.Seconds()
		}
		w.last[pod.Name] = c
	}
	w.rates = append(w.rates, now)
}

func sum(s status.Status) (c counted) {
	for _, svc := range s.Services {
		for _, f := range svc.Frontends {
			c.packets += f.Counts.Packets
			c.flows += f.Counts.Flows
		}
	}
	return c
}

// connections returns the total number of connections of each load balancer.
func (w *watch) connections() map[string]uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	per := map[string]uint64{}
	for name, c := range w.last {
		per[name] = c.flows
	}
	return per
}

const clearLine = "\r\x1b[K"

// show writes one line: requests per second by backend, packets by load balancer.
func (w *watch) show() {
	w.mu.Lock()
	defer w.mu.Unlock()
	bins := w.r.load.Series()
	per, total := map[string]float64{}, 0.0
	const recent = 10 // the last second, without the bin that still grows
	for _, b := range bins[max(0, len(bins)-1-recent):max(0, len(bins)-1)] {
		for name, n := range b.PerServer {
			per[name] += float64(n)
			total += float64(n)
		}
	}
	line := fmt.Sprintf("%6.1f s  %-15s %5.0f requests/s | servers%s | balancers, packets/s%s", time.Since(w.r.began).Seconds(), w.label, total,
		words(per), words(w.rates[len(w.rates)-1].per))
	if w.r.Width > 0 {
		fmt.Fprint(w.r.Out, clearLine, line[:min(len(line), w.r.Width-1)])
	} else {
		fmt.Fprintln(w.r.Out, line)
	}
}

// words lists rates by name, without the service's name before each.
func words(per map[string]float64) string {
	var b strings.Builder
	for _, name := range sortedKeys(per) {
		_, short, _ := strings.Cut(name, "-")
		fmt.Fprintf(&b, " %s:%.0f", short, per[name])
	}
	return b.String()
}

// now sets the label of the live view.
func (w *watch) now(label string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.label = label
}

// print writes permanent lines.
func (w *watch) print(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.r.Width > 0 {
		fmt.Fprint(w.r.Out, clearLine)
	}
	fmt.Fprintf(w.r.Out, format+"\n", args...)
}

// samples returns the time series of the whole run for the report.
func (w *watch) samples(c *load.Client) []Sample {
	w.mu.Lock()
	defer w.mu.Unlock()
	bins, i := c.Series(), 0
	var all []Sample
	for n := 0; n+2 < len(bins); n += 3 { // 300 ms, for smoother lines
		s := Sample{At: time.Duration(n) * load.BinLength, PerServer: map[string]float64{}}
		for _, b := range bins[n : n+3] {
			s.Failed += uint64(b.Failed)
			for name, k := range b.PerServer {
				s.PerServer[name] += float64(k) / (3 * load.BinLength.Seconds())
			}
		}
		for i+1 < len(w.rates) && w.rates[i].at < s.At {
			i++
		}
		if i < len(w.rates) {
			s.PerBalancer = w.rates[i].per
		}
		all = append(all, s)
	}
	return all
}
