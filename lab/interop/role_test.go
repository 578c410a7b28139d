package interop

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/bgp"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/testkit/actor"
	"github.com/fairlead/fairlead/router"
)

// part is the role of a process, one of these.
type part struct {
	Speaker   *bgp.SpeakerConfig
	Reflector *bgp.ReflectorConfig
	Router    *bgp.RouterConfig
	// Nodes are a reflector and speakers on addresses of one host: "105,106" advertises
	// two next hops.
	Nodes string
}

// order is a line to a process, report one from it.
type order struct {
	Routes []route.Route // of a speaker; nil leaves its current ones
	Last   string        // what the last of Nodes does: withdraw or announce
	Usage  bool          // query the resource usage of the process
}

type report struct {
	Error string
	Peers []advertise.Peer
	Usage usage
}

// usage is what a leak would increase, and the peak resident memory.
type usage struct{ Goroutines, Files, Heap, Peak int }

func used() (u usage) {
	var m runtime.MemStats
	debug.FreeOSMemory()
	runtime.ReadMemStats(&m)
	files, _ := os.ReadDir("/proc/self/fd")
	u = usage{Goroutines: runtime.NumGoroutine(), Files: len(files), Heap: int(m.HeapAlloc)}
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &u.Peak); err == nil {
			u.Peak <<= 10
		}
	}
	return u
}

// serve answers orders, including those for resource usage.
func serve(do func(order) report, end func() error) error {
	return actor.Serve(func(o order) report {
		r := do(o)
		if o.Usage {
			r.Usage = used()
		}
		return r
	}, end)
}

func enact(t *testing.T, h *lab.Host, p part) *actor.Actor[order, report] {
	t.Helper()
	return actor.Start[order, report](t, h, p)
}

func play(p part) error {
	var log *slog.Logger
	if os.Getenv("FAIRLEAD_TEST_LOG") != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	switch {
	case p.Speaker != nil:
		p.Speaker.Log = log
		s, err := bgp.NewSpeaker(*p.Speaker)
		if err != nil {
			return err
		}
		return serve(func(o order) report {
			if o.Routes == nil {
				return reportOf(nil, s.Peers())
			}
			return reportOf(s.Set(o.Routes), s.Peers())
		}, s.Close)
	case p.Reflector != nil:
		p.Reflector.Log = log
		r, err := bgp.NewReflector(*p.Reflector)
		if err != nil {
			return err
		}
		return serve(func(order) report { return reportOf(nil, r.Peers()) }, r.Close)
	case p.Router != nil:
		p.Router.Log = log
		return playRouter(*p.Router)
	}
	return playNodes(strings.Split(p.Nodes, ","))
}

func reportOf(err error, peers []advertise.Peer) report {
	if err != nil {
		return report{Error: err.Error(), Peers: peers}
	}
	return report{Peers: peers}
}

func playRouter(c bgp.RouterConfig) error {
	table, err := router.New(router.Config{})
	if err != nil {
		return err
	}
	r, err := bgp.NewRouter(c, func(sets []advertise.RouteSet) {
		if err := table.Set(sets); err != nil {
			slog.Error("routes", "error", err)
		}
	})
	if err != nil {
		return err
	}
	return serve(func(order) report { return reportOf(nil, r.Peers()) }, func() error { return errors.Join(r.Close(), table.Close(true)) })
}

func playNodes(nodes []string) error {
	reflector := netip.MustParseAddr("10.0.0.109")
	r, err := bgp.NewReflector(bgp.ReflectorConfig{AS: 65021, RouterID: reflector, Listen: []netip.Addr{reflector}, Groups: []bgp.NeighborGroup{
		{Name: "balancers", Prefixes: []netip.Prefix{netip.MustParsePrefix("172.16.0.0/16")}},
		{Name: "router", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.110/32")}, SendMax: 16, Password: "secret", BFD: true},
	}})
	if err != nil {
		return err
	}
	defer r.Close()
	var last *bgp.Speaker
	var routes []route.Route
	for _, n := range nodes {
		last, err = bgp.NewSpeaker(bgp.SpeakerConfig{AS: 65021, LocalAddress: netip.MustParseAddr("172.16.0." + n),
			Peers: []bgp.PeerConfig{{Address: reflector}}})
		if err != nil {
			return err
		}
		defer last.Close()
		routes = []route.Route{
			{Prefix: netip.MustParsePrefix("10.1.1.0/24"), NextHop: netip.MustParseAddr("10.0.0." + n)},
			{Prefix: netip.MustParsePrefix("fd00:1:1::/64"), NextHop: netip.MustParseAddr("fd00::" + n)}}
		if err := last.Set(routes); err != nil {
			return err
		}
	}
	return actor.Serve(func(o order) report {
		var err error
		switch o.Last {
		case "withdraw":
			err = last.Set(nil)
		case "announce":
			err = last.Set(routes)
		}
		return reportOf(err, r.Peers())
	}, func() error { return nil })
}
