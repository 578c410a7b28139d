package engine

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"sync"

	"github.com/eapache/channels"
	"github.com/osrg/gobgp/v4/pkg/server"
)

// gate is the channel on which gobgp receives accepted connections.
//
// gobgp itself dials only 1.5 to 2 s after it has decided to, and pauses for 5 s after a
// session that failed and 30 s after a reset: constants that no option changes. A load
// balancer would advertise nothing for that long, and after a reflector's restart the
// router would have no route at all. Therefore we dial and listen ourselves
// (connect.go) and hand gobgp each connection as if it had accepted it; all its
// neighbors are passive. It has no API for that, so this file, and only this file,
// accesses an unexported field. TestGate fails if a new gobgp no longer has it.
type gate chan<- net.Conn

// openGate must be called before the server starts serving.
func openGate(s *server.BgpServer) (gate, error) {
	field := reflect.ValueOf(s).Elem().FieldByName("acceptCh")
	if !field.IsValid() || field.Type() != reflect.TypeFor[chan net.Conn]() {
		return nil, fmt.Errorf("this gobgp has no accept channel as 4.8.0 has: use that version, or fix gate.go")
	}
	if err := checkQueues(); err != nil {
		return nil, err
	}
	ch := make(chan net.Conn, 64)
	*(*chan net.Conn)(field.Addr().UnsafePointer()) = ch
	return ch, nil
}

// queue is what gobgp has yet to write to a neighbor. When a session ends, gobgp 4.8
// closes it and removes what is ready at that moment. A goroutine that is about to hand
// over the rest blocks forever: each session leaks one, with everything that the neighbor
// had not received. Therefore the owner of the session drains the queue.
type queue = channels.InfiniteChannel

// queueOf returns the queue of a neighbor in gobgp, under gobgp's own lock.
func queueOf(s *server.BgpServer, a netip.Addr) *queue {
	v := reflect.ValueOf(s).Elem()
	mu := (*sync.RWMutex)(v.FieldByName("shared").Elem().FieldByName("mu").Addr().UnsafePointer())
	mu.RLock()
	defer mu.RUnlock()
	peer := v.FieldByName("neighborMap").MapIndex(reflect.ValueOf(a))
	if !peer.IsValid() {
		return nil
	}
	return (*queue)(peer.Elem().FieldByName("fsm").Elem().FieldByName("outgoingCh").UnsafePointer())
}

// checkQueues reports whether queueOf would find all the fields that it reads.
func checkQueues() error {
	field := func(t reflect.Type, name string, want reflect.Kind) reflect.Type {
		if f, ok := t.FieldByName(name); ok && f.Type.Kind() == want {
			return f.Type
		}
		return reflect.TypeFor[struct{}]() // has no fields
	}
	elem := func(t reflect.Type) reflect.Type {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Map {
			t = t.Elem()
		}
		return t
	}
	s := reflect.TypeFor[server.BgpServer]()
	mu := field(elem(field(s, "shared", reflect.Pointer)), "mu", reflect.Struct)
	neighbors := field(s, "neighborMap", reflect.Map)
	out := field(elem(field(elem(neighbors), "fsm", reflect.Pointer)), "outgoingCh", reflect.Pointer)
	if mu != reflect.TypeFor[sync.RWMutex]() || neighbors.Kind() != reflect.Map || neighbors.Key() != reflect.TypeFor[netip.Addr]() || out != reflect.TypeFor[*queue]() {
		return errors.New("this gobgp has no queues as 4.8.0 has: use that version, or fix gate.go")
	}
	return nil
}

// drain empties a queue until gobgp has closed it.
func drain(q *queue) {
	for range q.Out() {
	}
}
