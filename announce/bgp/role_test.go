package bgp

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/announce"
	"github.com/fairlead/fairlead/fib"
	"github.com/fairlead/fairlead/internal/testkit"
	"github.com/fairlead/fairlead/lab"
)

// Speakers, reflectors and routers of the tests in netns_test.go are processes
// of their own, so that they can be killed and their start can be timed: this
// test binary, told by its environment what to be.
const roleVar = "FAIRLEAD_BGP_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVar); role != "" {
		if err := play(role); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if slices.ContainsFunc(os.Args, func(a string) bool { return strings.HasPrefix(a, "-test.fuzz=") || a == "-test.fuzzworker" }) {
		os.Exit(m.Run()) // fuzzers have pipes that no sandbox passes on; they need none
	}
	testkit.Main(m)
}

// part is what a process is to be.
type part struct {
	Speaker   *SpeakerConfig
	Routes    []announce.Route
	Reflector *ReflectorConfig
	Router    *RouterConfig
}

// order is a line to a process, report one from it.
type order struct {
	Set   []announce.Route
	Peers []PeerConfig
	Close bool
}

type report struct {
	Error  string
	Routes []announce.RouteSet // the router has put into the kernel
	Peers  []announce.Peer
	Calls  int // times that the router's routes changed
}

func play(role string) error {
	var p part
	if err := json.Unmarshal([]byte(role), &p); err != nil {
		return err
	}
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
		return obey(func(o order) report { rs, _ := r.Routes(); return report{Peers: r.Peers(), Routes: rs} }, r.Close)
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
	return obey(func(o order) (r report) {
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
		r.Peers = s.Peers()
		return r
	}, s.Close)
}

func playRouter(p part) error {
	table, err := fib.New(fib.Config{})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var held []announce.RouteSet
	var calls int
	var fault string
	p.Router.Log = roleLog()
	before, err := table.List()
	if err != nil {
		return err
	}
	p.Router.Held = len(before) > 0
	r, err := NewRouter(*p.Router, func(rs []announce.RouteSet) {
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
	return obey(func(order) report {
		mu.Lock()
		defer mu.Unlock()
		return report{Error: fault, Routes: slices.Clone(held), Calls: calls, Peers: r.Peers()}
	}, r.Close)
}

// obey answers orders until one says close or there are no more.
func obey(do func(order) report, end func() error) error {
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for in.Scan() {
		var o order
		if err := json.Unmarshal(in.Bytes(), &o); err != nil {
			return err
		}
		if o.Close {
			return end()
		}
		if err := out.Encode(do(o)); err != nil {
			return err
		}
	}
	return end()
}

// actor is a process that plays a part in a host of a lab.
type actor struct {
	t   *testing.T
	p   *lab.Process
	in  *json.Encoder
	out *bufio.Scanner
	mu  sync.Mutex
}

func enact(t *testing.T, h *lab.Host, p part) *actor {
	t.Helper()
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleVar+"="+string(b))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = w
	proc, err := h.Start(cmd)
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proc.Kill(); <-proc.Done(); r.Close(); stdin.Close() })
	out := bufio.NewScanner(r)
	out.Buffer(nil, 1<<20)
	return &actor{t: t, p: proc, in: json.NewEncoder(stdin), out: out}
}

func (a *actor) tell(o order) report {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	var r report
	if err := a.in.Encode(o); err != nil {
		a.t.Fatal(err)
	}
	if !a.out.Scan() {
		a.t.Fatalf("process %d said nothing: %v", a.p.PID(), a.out.Err())
	}
	if err := json.Unmarshal(a.out.Bytes(), &r); err != nil {
		a.t.Fatal(err)
	}
	return r
}

func (a *actor) ask() report { return a.tell(order{}) }

func (a *actor) close() {
	a.t.Helper()
	if err := a.in.Encode(order{Close: true}); err != nil {
		a.t.Fatal(err)
	}
	select {
	case <-a.p.Done():
	case <-time.After(20 * time.Second):
		a.t.Fatal("process does not end")
	}
}
