// Package simulator measures the cost of simulation, and compares it with ns-2 if that is
// installed: the CPU time per simulated second, and whether both count the same replies.
package simulator

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/cputime"
	"github.com/fairlead/fairlead/lab/sim/lvs"
)

//go:embed topology1.tcl
var topology1 string

// Options configures how much is measured.
type Options struct {
	Rounds   int       // of all cases, one after the other
	Seconds  int       // simulated seconds of a case, in addition to the one that measures setup
	Progress io.Writer // for progress messages
}

// Validate rejects options that cannot be measured.
func (o Options) Validate() error {
	if o.Rounds < 1 {
		return fmt.Errorf("--rounds: %d is less than 1", o.Rounds)
	}
	if o.Seconds < 1 {
		return fmt.Errorf("--seconds: %d is less than 1", o.Seconds)
	}
	return nil
}

// Goals, as fractions of the time of ns-2, and in milliseconds.
const (
	compatGoal = 0.7
	scaleGoal  = 0.25
	setUpGoal  = 100
)

const (
	clients = 30 // each with 1,000 requests a second
	crowd   = 1000
	peer    = "ns-2"
)

// Measure compares both clocks with ns-2 at 30,000 requests per second.
func Measure(ctx context.Context, o Options) (*bench.Report, error) {
	r := bench.New("sim")
	ns, err := exec.LookPath("ns")
	if err != nil {
		r.Note("ns-2 is not installed (Debian: ns2): results are not compared with it")
	}
	for _, servers := range []int{1, 12} {
		if err := compare(ctx, r, ns, servers, o); err != nil {
			return nil, err
		}
	}
	var all []float64
	for range o.Rounds {
		ms, _, err := ours(ctx, lvs.Compat, crowd, 1, 0)
		if err != nil {
			return nil, err
		}
		all = append(all, ms)
	}
	r.Rows = append(r.Rows, bench.Plain("setting up 1,000 clients", "ms", all...).AtMost(setUpGoal))
	r.Note("processor time, user and system; the first %d seconds less the first one, which setting up is part of", o.Seconds+1)
	return r, nil
}

// turns is how often each clock is measured before ns-2, and again after it. All these
// runs together take about as long as ns-2, so that other load on the machine affects
// both equally.
const turns = 2

// compare adds the rows for one number of backends.
func compare(ctx context.Context, r *bench.Report, ns string, servers int, o Options) error {
	took := map[string][]float64{}
	for i := range o.Rounds {
		fmt.Fprintf(o.Progress, "servers: %d, round %d of %d\n", servers, i+1, o.Rounds)
		k := round{servers, o.Seconds, map[string]float64{}, map[string]int{}}
		if err := k.run(ctx, ns); err != nil {
			return err
		}
		for name, ms := range k.took {
			took[name] = append(took[name], ms)
		}
	}
	r.Rows = append(r.Rows, row(lvs.Compat, servers, compatGoal, took), row(lvs.Scale, servers, scaleGoal, took))
	return nil
}

// round contains the milliseconds that each clock and ns-2 took per simulated second, and
// the replies that they counted.
type round struct {
	servers, seconds int
	took             map[string]float64
	replies          map[string]int
}

func (k *round) run(ctx context.Context, ns string) error {
	if err := k.clocks(ctx); err != nil {
		return err
	}
	if ns != "" {
		err := k.measure(peer, 1, func(s int) (float64, int, error) { return theirs(ctx, ns, clients, k.servers, s) })
		if err != nil {
			return err
		}
		if k.replies[peer] != k.replies[string(lvs.Compat)] {
			return fmt.Errorf("ns-2 counts %d replies of %d servers, compat %d: they must agree", k.replies[peer], k.servers, k.replies[string(lvs.Compat)])
		}
	}
	return k.clocks(ctx)
}

// clocks measures both clocks, alternating.
func (k *round) clocks(ctx context.Context) error {
	for range turns {
		for _, clock := range lvs.Clocks {
			err := k.measure(string(clock), 2*turns, func(s int) (float64, int, error) { return ours(ctx, clock, clients, k.servers, s) })
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// measure adds one of several measurements of the same thing.
func (k *round) measure(name string, of float64, run func(seconds int) (ms float64, replies int, err error)) error {
	short, _, err := run(1)
	if err != nil {
		return err
	}
	long, n, err := run(1 + k.seconds)
	k.took[name], k.replies[name] = k.took[name]+(long-short)/float64(k.seconds)/of, n
	return err
}

func row(clock lvs.Clock, servers int, goal float64, took map[string][]float64) bench.Row {
	name, raw := fmt.Sprintf("a second at 30,000/s, servers: %d, %s", servers, clock), took[string(clock)]
	if len(took[peer]) == 0 {
		return bench.Plain(name, "ms", raw...)
	}
	return bench.OverFloor(name, "of "+peer+"'s time", raw, bench.RatioTo(peer, raw, took[peer])).AtMost(goal)
}

// ours simulates seconds of load, and returns the CPU time in milliseconds and the number
// of replies.
func ours(ctx context.Context, clock lvs.Clock, clients, servers, seconds int) (ms float64, replies int, err error) {
	before := cputime.Process()
	result, err := lvs.Setup{
		LAN: lvs.Mega100, Method: service.DSRNAT, Scheduler: service.RoundRobin,
		Servers: servers, Clients: clients, Every: 0.001, Seconds: seconds,
	}.Run(ctx, clock, 1)
	if err != nil {
		return 0, 0, err
	}
	for _, s := range result.Seconds {
		replies += int(s.Replies)
	}
	return float64(cputime.Process()-before) / 1e6, replies, nil
}

// theirs does the same with ns-2.
func theirs(ctx context.Context, ns string, clients, servers, seconds int) (ms float64, replies int, err error) {
	cmd := exec.CommandContext(ctx, ns, "/dev/stdin", strconv.Itoa(clients), strconv.Itoa(servers), strconv.Itoa(1+seconds))
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout = strings.NewReader(topology1), &out
	if err := cmd.Run(); err != nil {
		return 0, 0, fmt.Errorf("%s: %w: %s", ns, err, &out)
	}
	_, count, _ := strings.Cut(out.String(), "replies ")
	if replies, err = strconv.Atoi(strings.TrimSpace(count)); err != nil {
		return 0, 0, fmt.Errorf("%s printed no replies, but %q", ns, &out)
	}
	return float64((cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Microseconds()) / 1e3, replies, nil
}
