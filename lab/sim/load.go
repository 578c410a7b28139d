package sim

// Load says when a client asks, and for what. It may use the Stream, and nothing
// else that is not its own.
type Load interface {
	// Next gives the request that is made now, and when the one after it is.
	Next(number int, random *Stream) Request
}

// Request is what a client asks for.
type Request struct {
	// Wait is the span until the next request, in seconds; below 0: there is none.
	Wait float64
	// Replies are the packets of the answer. A connection takes as many as Size
	// needs where it is 0.
	Replies int
	// Size is what is asked for, in bytes: see Server.Speed.
	Size int
	// Flow says which of a client's flows it is of: each has a port of its own. A
	// connection always is a flow of its own.
	Flow int
}

// starter is a load that does not begin at its client's start, but later.
type starter interface {
	first(random *Stream) float64
}

// Poisson asks at random, so often a second on the mean, for sizes that are drawn
// (nil: 0), with one reply each.
func Poisson(rate float64, size Draw) Load { return poisson{Exponential(1 / rate), size} }

type poisson struct{ wait, size Draw }

func (p poisson) first(random *Stream) float64 { return p.wait(random) }

func (p poisson) Next(_ int, random *Stream) Request {
	r := Request{Wait: p.wait(random), Replies: 1}
	if p.size != nil {
		r.Size = int(p.size(random))
	}
	return r
}

// Steady asks once in so many seconds, for sizes that are drawn, with one reply
// each.
func Steady(every float64, size Draw) Load { return steady{every, size} }

type steady struct {
	every float64
	size  Draw
}

func (s steady) Next(_ int, random *Stream) Request {
	return Request{Wait: s.every, Replies: 1, Size: int(s.size(random))}
}

// Record is a request of a trace.
type Record struct {
	At   float64 // seconds after the client's start; never before the record before it
	Size int     // bytes asked for
	Flow int     // 0, 1, …
}

// Replay asks as a trace says, with one reply each.
func Replay(trace []Record) Load { return replay(trace) }

type replay []Record

func (r replay) first(*Stream) float64 {
	if len(r) == 0 {
		return -1
	}
	return r[0].At
}

func (r replay) Next(number int, _ *Stream) Request {
	k := r[number]
	q := Request{Wait: -1, Replies: 1, Size: k.Size, Flow: k.Flow}
	if number+1 < len(r) {
		q.Wait = max(0, r[number+1].At-k.At)
	}
	return q
}
