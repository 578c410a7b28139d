package tail

import (
	"math"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/sim/experiments/draw"
)

func mean(xs []float64) (sum float64) {
	for _, x := range xs {
		sum += x
	}
	return sum / float64(len(xs))
}

func alike(n, cores int) (servers []Server) {
	for range n {
		servers = append(servers, Server{cores, 1})
	}
	return servers
}

func (c Case) took(t *testing.T) []float64 {
	t.Helper()
	times, err := c.Run()
	if err != nil {
		t.Fatal(err)
	}
	return times.Took
}

func near(t *testing.T, what string, got, want, by float64) {
	t.Helper()
	if math.Abs(got/want-1) > by {
		t.Errorf("%s is %.4f, want %.4f", what, got, want)
	}
}

// M/G/1: the mean wait follows from the Pollaczek-Khinchine formula.
func TestPollaczekKhinchine(t *testing.T) {
	for _, c := range []struct {
		work draw.Work
		load float64
		by   float64
	}{
		{draw.Constant(), 0.8, 0.02}, {draw.Exponential(), 0.5, 0.04}, {draw.Exponential(), 0.8, 0.04},
		{draw.Lognormal(1), 0.7, 0.05}, {draw.Pareto(1.5, 100), 0.7, 0.05},
	} {
		took := Case{Scheduler: service.RoundRobin, Servers: alike(1, 1), Balancers: 1, View: Own, Load: c.load, Work: c.work, Requests: 400_000, Seed: 1}.took(t)
		near(t, "M/G/1, "+c.work.Name, mean(took)-1, c.load*c.work.Second/(2*(1-c.load)), c.by)
	}
}

// M/M/1: the time in the system is exponential, so its percentiles are known.
func TestPercentilesOfOneQueue(t *testing.T) {
	took := Case{Scheduler: service.Maglev, Servers: alike(1, 1), Balancers: 1, View: Own, Load: 0.7, Work: draw.Exponential(), Requests: 400_000, Seed: 2}.took(t)
	slices.Sort(took)
	for _, p := range []float64{0.5, 0.99, 0.999} {
		near(t, "a percentile of M/M/1", quantile(took, p), -math.Log(1-p)/(1-0.7), 0.06)
	}
}

// M/M/c: the mean wait follows from the Erlang C formula.
func TestErlangC(t *testing.T) {
	const load = 0.85
	for _, cores := range []int{2, 8} {
		took := Case{Scheduler: service.LeastConn, Servers: alike(1, cores), Balancers: 3, View: All, Load: load, Work: draw.Exponential(), Requests: 400_000, Seed: 3}.took(t)
		a := load * float64(cores)
		term, sum := 1.0, 0.0
		for k := range cores {
			sum += term
			term *= a / float64(k+1)
		}
		waits := term / (1 - load) / (sum + term/(1-load))
		near(t, "M/M/c", mean(took)-1, waits/(float64(cores)*(1-load)), 0.05)
	}
}

// Two choices with exact counts: the mean of Mitzenmacher's fixed point (2001, section
// 2.2), for many servers.
func TestPowerOfTwoChoices(t *testing.T) {
	const load = 0.9
	want := 0.0
	for i := 1; i < 12; i++ {
		want += math.Pow(load, math.Pow(2, float64(i))-2)
	}
	took := Case{Scheduler: service.PowerOfTwo, Servers: alike(200, 1), Balancers: 1, View: Own, Load: load, Work: draw.Exponential(), Requests: 400_000, Seed: 4}.took(t)
	near(t, "p2c", mean(took), want, 0.03)
}

// With random selection, every server is a separate queue. Maglev gives each about its
// share. Round robin is better than random, and least connections better than round
// robin.
func TestOrderOfSchedulers(t *testing.T) {
	took := map[service.Scheduler]float64{}
	for _, s := range []service.Scheduler{service.Maglev, service.RoundRobin, service.PowerOfTwo, service.LeastConn} {
		took[s] = mean(Case{Scheduler: s, Servers: alike(16, 1), Balancers: 1, View: Own, Load: 0.8, Work: draw.Exponential(), Requests: 200_000, Seed: 5}.took(t))
	}
	near(t, "maglev as M/M/1", took[service.Maglev], 5, 0.15)
	if !(took[service.LeastConn] < took[service.PowerOfTwo] && took[service.PowerOfTwo] < took[service.RoundRobin] && took[service.RoundRobin] < took[service.Maglev]) {
		t.Errorf("means %v", took)
	}
}
