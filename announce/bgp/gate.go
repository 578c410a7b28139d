package bgp

import (
	"fmt"
	"net"
	"reflect"

	"github.com/osrg/gobgp/v4/pkg/server"
)

// gate is the channel on which gobgp takes connections that were accepted.
//
// gobgp dials by itself only 1.5 to 2 s after it has decided to, rests 5 s
// after a session that failed and 30 s after a reset: constants that no
// option changes. A balancer would announce nothing for that long, and after
// a reflector's restart the router would have no route at all. So we dial and
// listen ourselves (transport.go) and hand gobgp each connection as if it had
// accepted it; all its neighbours are passive. It has no call for that, hence
// the reach into an unexported field, in this file only. TestGate fails where
// a new gobgp no longer has it.
type gate chan<- net.Conn

// openGate must be called before the server serves.
func openGate(s *server.BgpServer) (gate, error) {
	field := reflect.ValueOf(s).Elem().FieldByName("acceptCh")
	if !field.IsValid() || field.Type() != reflect.TypeFor[chan net.Conn]() {
		return nil, fmt.Errorf("this gobgp has no accept channel as 4.8.0 has: use that version, or mend gate.go")
	}
	ch := make(chan net.Conn, 64)
	*(*chan net.Conn)(field.Addr().UnsafePointer()) = ch
	return ch, nil
}
