// Package traffic contains what clients of the simulator request, and when: requests at
// random, at intervals, or as in a trace.
//
// What does not belong here: connections, retries and all that depends on answers, which
// is the simulator's (sim).
package traffic

import "github.com/fairlead/fairlead/lab/sim/stochastic"

// Load determines when a client sends requests, and for what. It may use the Stream, and
// no other shared state.
type Load interface {
	// Next returns the current request, and when the next one follows.
	Next(number int, random *stochastic.Stream) Request
}

// Request is a client's request.
type Request struct {
	// Wait is the time until the next request, in seconds; negative without a next one.
	Wait float64
	// Replies is the number of packets of the reply. If it is 0, a connection uses as
	// many as Size needs.
	Replies int
	// Size is the number of bytes requested: see Server.Speed.
	Size int
	// Flow is the number of the client's flow. Each flow has its own port. A connection
	// is always a separate flow.
	Flow int
}

// Starter is a load that begins later than its client's start.
type Starter interface {
	First(random *stochastic.Stream) float64
}

// Poisson sends requests at random with the given mean rate per second and with random
// sizes (nil: 0), with one reply each.
func Poisson(rate float64, size stochastic.Draw) Load {
	return poisson{stochastic.Exponential(1 / rate), size}
}

type poisson struct{ wait, size stochastic.Draw }

func (p poisson) First(random *stochastic.Stream) float64 { return p.wait(random) }

func (p poisson) Next(_ int, random *stochastic.Stream) Request {
	r := Request{Wait: p.wait(random), Replies: 1}
	if p.size != nil {
		r.Size = int(p.size(random))
	}
	return r
}

// Steady sends a request every so many seconds, with random sizes and one reply each.
func Steady(every float64, size stochastic.Draw) Load { return steady{every, size} }

type steady struct {
	every float64
	size  stochastic.Draw
}

func (s steady) Next(_ int, random *stochastic.Stream) Request {
	return Request{Wait: s.every, Replies: 1, Size: int(s.size(random))}
}

// Record is a request of a trace.
type Record struct {
	At   float64 // seconds after the client's start, in ascending order
	Size int     // number of bytes requested
	Flow int     // 0, 1, …
}

// Replay sends the requests of a trace, with one reply each.
func Replay(trace []Record) Load { return replay(trace) }

type replay []Record

func (r replay) First(*stochastic.Stream) float64 {
	if len(r) == 0 {
		return -1
	}
	return r[0].At
}

func (r replay) Next(number int, _ *stochastic.Stream) Request {
	k := r[number]
	q := Request{Wait: -1, Replies: 1, Size: k.Size, Flow: k.Flow}
	if number+1 < len(r) {
		q.Wait = max(0, r[number+1].At-k.At)
	}
	return q
}
