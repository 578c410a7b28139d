package hierarchy

import (
	"math"
	"slices"

	"github.com/fairlead/fairlead/lab/sim/experiments"
)

// lans contains how one LAN with a load balancer performs, by number of servers and
// offered rate, as simulated packet by packet. Trees of any size are composed of those.
type lans struct {
	sizes, rates []float64
	all          [][]outcome // by size and rate
}

// lan interpolates between the simulated LANs. Beyond the largest one it uses that, which
// is too optimistic, because each additional server costs replies.
func (l *lans) lan(servers, rate float64) outcome {
	i, x := between(l.sizes, math.Log(servers), math.Log)
	k, y := between(l.rates, rate, func(r float64) float64 { return r })
	at := func(of func(*outcome) float64) float64 {
		low := of(&l.all[i][k])*(1-y) + of(&l.all[i][k+1])*y
		high := of(&l.all[i+1][k])*(1-y) + of(&l.all[i+1][k+1])*y
		return low*(1-x) + high*x
	}
	scale := rate / at(func(o *outcome) float64 { return o.offered }) // outside the range of rates, scale in proportion
	return outcome{
		replies:    scale * at(func(o *outcome) float64 { return o.replies }),
		received:   scale * at(func(o *outcome) float64 { return o.received }),
		delay:      at(func(o *outcome) float64 { return o.delay }),
		undetected: scale * at(func(o *outcome) float64 { return o.undetected }),
		lost:       []float64{scale * at(func(o *outcome) float64 { return o.lost[0] }), scale * at(func(o *outcome) float64 { return o.lost[1] })},
	}
}

// between returns the index of the interval that contains x, and the relative position in
// it.
func between(all []float64, x float64, of func(float64) float64) (at int, share float64) {
	at = 0
	for at < len(all)-2 && of(all[at+1]) <= x {
		at++
	}
	low, high := of(all[at]), of(all[at+1])
	return at, min(max((x-low)/(high-low), 0), 1)
}

// flows computes the result of a tree without simulating packets: each level consists of
// many identical LANs or queues, which share what passes the level above.
func (t tree) flows(rate float64, l *lans) *outcome {
	o := &outcome{lost: make([]float64, t.depth+1)}
	requests, answered, many := rate, 1.0, 1.0 // requests at each load balancer of a level; share of replies that get back up from there; number of load balancers
	for level := range t.depth {
		var through float64
		if t.medium == shared {
			lan := l.lan(float64(t.fanOut), requests)
			through = lan.received
			o.delay += lan.delay
			o.lost[level] += many * lan.lost[0]
			o.lost[level+1] += many * lan.lost[1]
			o.undetected += many * lan.undetected
			answered *= min(lan.replies/lan.received, 1)
		} else {
			loss, wait := queue(requests*t.takes, t.queue)
			through = requests * (1 - loss)
			o.delay += wait*t.takes + bits/fast/100
			o.lost[level] += many * requests * loss
		}
		requests, many = through/float64(t.fanOut), many*float64(t.fanOut)
	}
	if t.medium == switched {
		o.delay += 2 * bits / fast
	}
	o.received = requests * many
	o.replies = o.received * answered
	return o
}

// queue returns the loss rate of a queue with random arrivals, constant service time and
// room packets, including the one in service (M/D/1/K), and the mean time in the system
// of a packet that is not lost, in units of the service time. load is the number of
// arrivals per service time. It uses the distribution that departing packets leave behind
// (Gross and Harris, Fundamentals of Queueing Theory, on M/G/1/K).
func queue(load float64, room int) (loss, stay float64) {
	if load > 50 { // the probability of the other states is below 1e-20
		return 1 - 1/load, float64(room)
	}
	more := moreThan(load, room+1)
	left := make([]float64, room) // the share of each number of packets left behind
	left[0] = 1
	for j := range room - 1 {
		// Transitions from states up to j to above j are as frequent as from j+1 to j.
		sum := left[0] * more[j]
		for i := 1; i <= j; i++ {
			sum += left[i] * more[j-i+1]
		}
		if left[j+1] = sum / math.Exp(-load); left[j+1] > 1e200 { // only ratios matter
			for i := range j + 2 {
				left[i] /= 1e200
			}
		}
	}
	total, mean := 0.0, 0.0
	for i, p := range left {
		total += p
		mean += float64(i) * p
	}
	busy := left[0]/total + load
	loss = max(1-1/busy, 0)
	in := mean/total/busy + loss*float64(room)
	return loss, in / (load * (1 - loss))
}

// moreThan returns the probabilities that more than 0, 1, … n-1 packets arrive during one
// service time.
func moreThan(load float64, n int) []float64 {
	chances := make([]float64, n+200)
	chances[0] = math.Exp(-load)
	for i := 1; i < len(chances); i++ {
		chances[i] = chances[i-1] * load / float64(i)
	}
	sum := 0.0
	for i := len(chances) - 1; i >= 0; i-- {
		chances[i], sum = sum, sum+chances[i]
	}
	return chances[:n]
}

// measureLANs simulates one LAN with all sizes and rates, as parts of the run.
func measureLANs(r *experiments.Run, sizes, rates []float64) (*lans, error) {
	l := &lans{sizes: sizes, rates: rates, all: make([][]outcome, len(sizes))}
	for i := range l.all {
		l.all[i] = make([]outcome, len(rates))
	}
	err := r.Each(len(sizes)*len(rates), func(part int) error {
		part = len(sizes)*len(rates) - 1 - part // the longest first
		i, k := part/len(rates), part%len(rates)
		o, err := tree{medium: shared, fanOut: int(sizes[i]), depth: 1}.packets(r.Context, rates[k], r.Param("seconds")*max(1, 20e3/rates[k]), r.Seed)
		if err == nil {
			l.all[i][k] = *o
		}
		return err
	})
	return l, err
}

// shapes returns the trees with at least the given number of servers, from the flattest
// to the deepest, each fan-out once.
func shapes(servers int, deepest int) (all []tree) {
	for depth := 1; depth <= deepest; depth++ {
		fanOut := int(math.Ceil(math.Pow(float64(servers), 1/float64(depth)) - 1e-9))
		t := tree{fanOut: max(fanOut, 2), depth: depth}
		if !slices.ContainsFunc(all, func(o tree) bool { return o.fanOut == t.fanOut }) {
			all = append(all, t)
		}
	}
	return all
}
