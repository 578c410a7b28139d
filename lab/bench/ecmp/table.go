package ecmp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/lab/bench"
)

// Goals of the case table, in milliseconds.
const (
	fullTableGoal = 2000
	oneChangeGoal = 20
)

// changesARound is the number of single changes measured per round.
const changesARound = 10

// table measures how soon the router's kernel has a full table, and a single change.
func table(ctx context.Context, o Options, r *bench.Report) (err error) {
	base, host, err := newSpeakersNetwork(ctx, o, o.Balancers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, base.close()) }()
	if _, err := base.startReflector(); err != nil {
		return err
	}
	all, err := base.speak(host, 0, o.Balancers)
	if err != nil {
		return err
	}
	n := &tableNetwork{base, all}
	var t times
	for i := range o.Rounds {
		fmt.Fprintf(o.Progress, "table: round %d of %d\n", i+1, o.Rounds)
		if err := t.round(ctx, n); err != nil {
			return err
		}
	}
	size := fmt.Sprintf("%d prefixes x %d balancers", o.Prefixes, o.Balancers)
	row := func(what string, figures []float64) bench.Row {
		return bench.Plain("table: "+what+", "+size, "ms", figures...)
	}
	r.Rows = append(r.Rows,
		row("all balancers announce, sessions up", t.announce).AtMost(fullTableGoal),
		row("all balancers announce, the router's processor time", t.announceCPU),
		row("router starts", t.start).AtMost(fullTableGoal),
		row("router starts, its processor time", t.startCPU),
		row("one prefix loses a balancer", t.withdraw).AtMost(oneChangeGoal),
		row("one prefix gains a balancer", t.add).AtMost(oneChangeGoal),
		row("one balancer withdraws all", t.leave),
	)
	r.Note("table: each time is from the order to the balancers, or the router's start, until its kernel has every prefix with every next hop")
	return nil
}

// times contains the measurements, in milliseconds.
type times struct{ announce, start, withdraw, add, leave, announceCPU, startCPU []float64 }

// round starts and ends with an empty kernel table and no route advertised.
func (t *times) round(ctx context.Context, n *tableNetwork) error {
	full, all := order{All: n.o.Prefixes}, n.o.Balancers
	router, err := n.startRouter()
	if err != nil {
		return err
	}
	// The first route shows that the router's session is up.
	if _, err := n.order(ctx, order{All: 1}, 1, all); err != nil {
		return err
	}
	if n.o.Prefixes > 1 && n.hops(n.o.Prefixes-1) != 0 {
		return fmt.Errorf("the router's kernel still has %s", servicePrefix(n.o.Prefixes-1))
	}
	before := processorTime(router.PID())
	if err := n.timed(ctx, full, n.o.Prefixes, all, &t.announce); err != nil {
		return err
	}
	t.announceCPU = append(t.announceCPU, processorTime(router.PID())-before)
	if err := n.timed(ctx, order{All: n.o.Prefixes, Less: n.o.Prefixes}, n.o.Prefixes, all-1, &t.leave); err != nil {
		return err
	}
	if _, err := n.order(ctx, full, n.o.Prefixes, all); err != nil {
		return err
	}
	for range changesARound {
		if err := n.timed(ctx, order{All: n.o.Prefixes, Less: 1}, 1, all-1, &t.withdraw); err != nil {
			return err
		}
		if err := n.timed(ctx, full, 1, all, &t.add); err != nil {
			return err
		}
	}
	if err := n.endRouter(router); err != nil {
		return err
	}
	began := time.Now()
	if router, err = n.startRouter(); err != nil {
		return err
	}
	took, err := n.until(ctx, began, n.o.Prefixes, all)
	if err != nil {
		return err
	}
	t.start, t.startCPU = append(t.start, ms(took)), append(t.startCPU, processorTime(router.PID()))
	if err := n.endRouter(router); err != nil {
		return err
	}
	return n.obey(order{})
}

// tableNetwork is a network with one process that speaks for all load balancers.
type tableNetwork struct {
	*network
	*speakers
}

// order sends an order, waits until the router's kernel has the given number of next hops
// for each of the first prefixes, and returns how long that took.
func (n *tableNetwork) order(ctx context.Context, o order, prefixes, hops int) (time.Duration, error) {
	began := time.Now()
	if err := n.send(o); err != nil {
		return 0, err
	}
	took, err := n.until(ctx, began, prefixes, hops)
	if err != nil {
		return 0, err
	}
	return took, n.answered()
}

func (n *tableNetwork) timed(ctx context.Context, o order, prefixes, hops int, into *[]float64) error {
	took, err := n.order(ctx, o, prefixes, hops)
	*into = append(*into, ms(took))
	return err
}

// processorTime returns the CPU time of a process so far, in milliseconds, in steps of
// ten, or 0 if the process is gone. On a busy machine it is more meaningful than elapsed
// time.
func processorTime(pid int) float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(text), ") ") // the process name comes before
	fields := strings.Fields(after)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return 10 * (user + system)
}
