package bgp

import (
	"log/slog"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testkit/actor"
	"github.com/fairlead/fairlead/router"
)

// Speakers, reflectors and routers of the tests in netns_test.go are separate processes,
// so that they can be killed and their start can be timed.
func TestMain(m *testing.M) {
	actor.Play(play)
	testkit.Main(m)
}

// part is the role of a process.
type part struct {
	Speaker   *SpeakerConfig
	Routes    []route.Route
	Reflector *ReflectorConfig
	Router    *RouterConfig
}

// order is a line sent to a process, report one received from it.
type order struct {
	Set   []route.Route
	Peers []PeerConfig
}

type report struct {
	Error  string
	Routes []advertise.RouteSet // as written to the kernel by the router
	Peers  []advertise.Peer
	Calls  int // number of changes of the router's routes
	// Waits lists the speaker's unconfirmed withdrawals.
	Waits []advertise.Withdrawal
}

func play(p part) error {
	if os.Getenv("FAIRLEAD_TEST_LOG") != "" {
		slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})))
	}
	switch {
	case p.Speaker != nil:
		return playSpeaker(p)
	case p.Reflector != nil:
		p.Reflector.Log = roleLog()
		r, err := NewReflector(*p.Reflector)
		if err != nil {
			return err
		}
		return actor.Serve(func(o order) report { rs, _ := r.Routes(); return report{Peers: r.Peers(), Routes: rs} }, r.Close)
	}
	if p.Router != nil {
		return playRouter(p)
	}
	for busy := 0; ; busy++ { // see TestBusyMachine
		runtime.KeepAlive(busy)
	}
}

func roleLog() *slog.Logger {
	if os.Getenv("FAIRLEAD_TEST_LOG") == "" {
		return nil
	}
	return slog.Default()
}

func playSpeaker(p part) error {
	p.Speaker.Log = roleLog()
	s, err := NewSpeaker(*p.Speaker)
	if err != nil {
		return err
	}
	if err := s.Set(p.Routes); err != nil {
		return err
	}
	return actor.Serve(func(o order) (r report) {
		if o.Set != nil {
			if err := s.Set(o.Set); err != nil {
				r.Error = err.Error()
			}
		}
		if o.Peers != nil {
			if err := s.SetPeers(o.Peers); err != nil {
				r.Error = err.Error()
			}
		}
		r.Peers, r.Waits = s.Peers(), s.Withdrawing()
		return r
	}, s.Close)
}

func playRouter(p part) error {
	table, err := router.New(router.Config{})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var held []advertise.RouteSet
	var calls int
	var fault string
	p.Router.Log = roleLog()
	before, err := table.List()
	if err != nil {
		return err
	}
	p.Router.Held = len(before) > 0
	r, err := NewRouter(*p.Router, func(rs []advertise.RouteSet) {
		err := table.Set(rs)
		mu.Lock()
		defer mu.Unlock()
		held, calls, fault = rs, calls+1, ""
		if err != nil {
			fault = err.Error()
		}
	})
	if err != nil {
		return err
	}
	return actor.Serve(func(order) report {
		mu.Lock()
		defer mu.Unlock()
		return report{Error: fault, Routes: slices.Clone(held), Calls: calls, Peers: r.Peers()}
	}, r.Close)
}

// player is a process that plays a part on a host of a lab.
type player struct {
	*actor.Actor[order, report]
	t *testing.T
}

func enact(t *testing.T, h *lab.Host, p part) *player {
	t.Helper()
	return &player{actor.Start[order, report](t, h, p), t}
}
