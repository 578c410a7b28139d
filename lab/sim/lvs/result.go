package lvs

import "github.com/fairlead/fairlead/lab/sim"

// Second contains the counts of one second of simulated time, or the mean of several.
type Second struct {
	Replies      float64 // received by clients: the paper's throughput
	Delay        float64 // sum of their round trips, in seconds
	Received     float64 // requests received by servers
	BalancerLoss float64 // packets lost at the (first) load balancer
	ServerLoss   float64 // packets lost at servers, and at a second load balancer
	Undetected   float64 // frames that their receiver did not receive, without their sender noticing
	// By server: requests received, replies sent, packets lost.
	ReceivedBy, SentBy, LostBy []float64
}

// Result is the result of a run, from the first request on.
type Result struct {
	Seconds []Second
	// When the (first) load balancer, and the first of the servers, lost a packet, in
	// seconds; the end of the run if they lost none.
	BalancerLost, ServerLost float64
}

// result summarizes the network's counts. The first second is before the start.
func (n *site[T]) result() *Result {
	r := &Result{BalancerLost: n.firstLoss(n.balancer), ServerLost: n.firstLoss(n.servers...)}
	clients, servers := n.bins(n.clients), n.bins(n.servers)
	for i, balancer := range n.Bins(n.balancer)[1:] {
		s := Second{BalancerLoss: float64(balancer.Lost()), Undetected: float64(balancer.Silent)}
		for _, bins := range clients {
			s.Replies += float64(bins[i+1].Got)
			s.Delay += bins[i+1].Delay
		}
		for _, bins := range servers {
			b := bins[i+1]
			s.Received += float64(b.Got)
			s.ServerLoss += float64(b.Lost())
			s.Undetected += float64(b.Silent)
			s.ReceivedBy = append(s.ReceivedBy, float64(b.Got))
			s.SentBy = append(s.SentBy, float64(b.Sent))
			s.LostBy = append(s.LostBy, float64(b.Lost()))
		}
		r.Seconds = append(r.Seconds, s)
	}
	return r
}

func (n *site[T]) firstLoss(of ...sim.Node) float64 {
	first := n.Now()
	for _, node := range of {
		if t := n.FirstLoss(node); t < first { // not if it is NaN
			first = t
		}
	}
	return first
}

func (n *site[T]) bins(nodes []sim.Node) [][]sim.Counts {
	all := make([][]sim.Counts, len(nodes))
	for i, node := range nodes {
		all[i] = n.Bins(node)
	}
	return all
}

// mean returns the mean of a measure over all seconds.
func (r *Result) mean(of Measure) float64 {
	sum := 0.0
	for _, s := range r.Seconds {
		sum += of(s)
	}
	return sum / float64(len(r.Seconds))
}

// roundTrip is the mean time from request to reply, in seconds.
func (r *Result) roundTrip() float64 {
	delay, replies := 0.0, 0.0
	for _, s := range r.Seconds {
		delay += s.Delay
		replies += s.Replies
	}
	return delay / replies
}

func (r *Result) balancerLost() float64 { return r.BalancerLost }
func (r *Result) firstLost() float64    { return min(r.BalancerLost, r.ServerLost) }

// Measure returns a figure's y value from a second.
type Measure func(Second) float64

func throughput(s Second) float64   { return s.Replies }
func receiving(s Second) float64    { return s.Received }
func balancerLoss(s Second) float64 { return s.BalancerLoss }
func serverLoss(s Second) float64   { return s.ServerLoss }
func undetected(s Second) float64   { return s.Undetected }

func receivedBy(i int) Measure { return func(s Second) float64 { return s.ReceivedBy[i] } }
func sentBy(i int) Measure     { return func(s Second) float64 { return s.SentBy[i] } }
func lostBy(i int) Measure     { return func(s Second) float64 { return s.LostBy[i] } }
