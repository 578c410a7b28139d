package engine

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/advertise/bfd"
	"github.com/fairlead/fairlead/core/event"
)

// recorder collects events as "TYPE NAME".
type recorder struct {
	mu  sync.Mutex
	all []string
}

func (r *recorder) record(e event.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if line := fmt.Sprintf("%s %s %s", e.Type, e.Object, e.Field); !slices.Contains(r.all, line) {
		r.all = append(r.all, line)
	}
}

func (r *recorder) has(t *testing.T, line string) {
	t.Helper()
	eventually(t, line, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return slices.Contains(r.all, line)
	})
}

// TestEvents records each change of a session and of BFD at both ends.
func TestEvents(t *testing.T) {
	var near, far recorder
	at, from := netip.MustParseAddrPort("127.23.0.110:20236"), netip.MustParseAddr("127.23.3.1")
	dial := dialing(from, at, testAS)
	dial.Events, dial.Dials[0].Group.BFD, dial.Dials[0].Group.Timing = near.record, true, bfd.Timing{Interval: 1e9}
	e := start(t, dial)
	near.has(t, "PeerUnreachable BGPPeer far 127.23.0.110")
	listen := listening(at, "127.23.3.0/24", testAS)
	listen.Events, listen.Groups[0].BFD, listen.Groups[0].Timing = far.record, true, bfd.Timing{Interval: 1e9}
	start(t, listen)
	near.has(t, "PeerEstablished BGPPeer far 127.23.0.110")
	near.has(t, "BFDUp BGPPeer far 127.23.0.110")
	far.has(t, "PeerEstablished BGPPeer 127.23.3.1 ")
	e.lose(e.sessions()[0], "BFD is down")
	near.has(t, "BFDDown BGPPeer far 127.23.0.110")
	near.has(t, "PeerDown BGPPeer far 127.23.0.110")
	far.has(t, "PeerDown BGPPeer 127.23.3.1 ")
	connect(t, netip.MustParseAddr("127.23.4.1"), at)
	far.has(t, "PeerRejected BGPPeer unconfigured ")
}
