package status

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/reconciler"
)

// sessions is an announcer whose peers have these states.
type sessions []string

func (sessions) Set([]route.Route) error             { return nil }
func (sessions) Close() error                        { return nil }
func (sessions) Withdrawing() []advertise.Withdrawal { return nil }
func (s sessions) Peers() (all []advertise.Peer) {
	for i, state := range s {
		all = append(all, advertise.Peer{Address: []string{"10.0.0.109", "10.0.0.110"}[i], State: state, LastError: map[string]string{"active": "connection refused"}[state]})
	}
	return all
}

func TestReady(t *testing.T) {
	whole, never := &reconciler.View{Loaded: true}, func() (time.Time, time.Time) { return time.Time{}, eleven }
	synced := func() (time.Time, time.Time) { return eleven, eleven } // and something is pending again
	for _, c := range []struct {
		name  string
		agent Agent
		up    time.Duration // since the start
		waits string
	}{
		{"whole", Agent{View: func() *reconciler.View { return whole }, ProxySync: synced, Announcer: sessions{"established"}}, 0, ""},
		{"no peers", Agent{View: func() *reconciler.View { return whole }}, 0, ""},
		{"reading", Agent{View: func() *reconciler.View { return &reconciler.View{Waits: "the Services have not been read yet"} }}, time.Hour,
			"the Services have not been read yet"},
		{"proxy", Agent{ProxySync: never}, time.Hour, "the service proxy has not written all Services yet"},
		{"peers unknown", Agent{PeersUnknown: true}, time.Hour, "the cluster's BGPPeers have not been read yet"},
		{"no session", Agent{Announcer: sessions{"active", "opensent"}}, time.Hour,
			"no BGP session is established: with 10.0.0.109 (active: connection refused), 10.0.0.110 (opensent)"},
		{"one session", Agent{Announcer: sessions{"active", "established"}}, PeerGrace - time.Second,
			"BGP sessions are not established, for which it waits for 30s: with 10.0.0.109 (active: connection refused)"},
		{"one session for long", Agent{Announcer: sessions{"active", "established"}}, PeerGrace, ""},
		{"much", Agent{ProxySync: never, Announcer: sessions{"idle"}}, 0,
			"the service proxy has not written all Services yet; no BGP session is established: with 10.0.0.109 (idle)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.agent.Started = eleven
			r := c.agent.Ready(eleven.Add(c.up))
			if got := strings.Join(r.Waits, "; "); got != c.waits || r.Ready != (c.waits == "") || (r.Err() == nil) != r.Ready {
				t.Errorf("%+v, %v\nwant %q", r, r.Err(), c.waits)
			}
		})
	}
}
