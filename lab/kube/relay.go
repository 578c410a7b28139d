package kube

import (
	"net"
	"sync"
	"time"
)

// Relay forwards between clients and a TCP server. It can cut connections and add
// latency, but does not reduce throughput. Its methods are safe for concurrent use.
type Relay struct {
	net.Listener
	dial func() (net.Conn, error)

	mu    sync.Mutex
	cut   bool
	delay time.Duration
	conns map[net.Conn]bool
}

// NewRelay accepts connections on a listener, which it closes in the end, and dials the
// server for each.
func NewRelay(l net.Listener, dial func() (net.Conn, error)) *Relay {
	r := &Relay{Listener: l, dial: dial, conns: map[net.Conn]bool{}}
	go r.serve()
	return r
}

func (r *Relay) serve() {
	for {
		from, err := r.Accept()
		if err != nil {
			return
		}
		go r.join(from)
	}
}

func (r *Relay) join(from net.Conn) {
	to, err := r.dial()
	if err != nil {
		from.Close()
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cut {
		from.Close()
		to.Close()
		return
	}
	r.conns[from], r.conns[to] = true, true
	go r.carry(from, to)
	go r.carry(to, from)
}

// chunk is the result of one read.
type chunk struct {
	text []byte
	due  time.Time
}

// carry copies data from one end to the other until either is closed.
func (r *Relay) carry(from, to net.Conn) {
	way := make(chan chunk, 1024)
	go func() {
		defer r.drop(from, to)
		for c := range way {
			time.Sleep(time.Until(c.due))
			if _, err := to.Write(c.text); err != nil {
				break
			}
		}
		for range way { // so that the reader does not block
		}
	}()
	defer close(way)
	for {
		text := make([]byte, 64<<10)
		n, err := from.Read(text)
		if err != nil {
			return
		}
		r.mu.Lock()
		delay := r.delay
		r.mu.Unlock()
		way <- chunk{text[:n], time.Now().Add(delay)}
	}
}

func (r *Relay) drop(conns ...net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		c.Close()
		delete(r.conns, c)
	}
}

// Cut(true) closes all connections and accepts no more; Cut(false) accepts them again.
func (r *Relay) Cut(cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cut = cut; cut {
		for c := range r.conns {
			c.Close()
		}
	}
}

// Delay sets the additional latency in each direction.
func (r *Relay) Delay(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = d
}

// Close closes all connections and the listener.
func (r *Relay) Close() error {
	r.Cut(true)
	return r.Listener.Close()
}
