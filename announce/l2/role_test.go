package l2

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/announce"
	"github.com/fairlead/fairlead/internal/testkit"
	"github.com/fairlead/fairlead/lab"
)

// Members are processes of their own, so that they can be killed: this test
// binary, told by its environment what to be.
const roleVar = "FAIRLEAD_L2_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVar); role != "" {
		if err := play(role); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testkit.Main(m)
}

// part is what a member is to be.
type part struct {
	Self     netip.Addr
	Members  []netip.Addr
	Later    []netip.Addr // the members, told when it is running
	Password string
	Prefixes []netip.Prefix
}

// report is what a member says when it is asked, by a line with its wishes or
// an empty one.
type report struct {
	Answered []announce.Answered
	Peers    []announce.Peer
}

func play(role string) error {
	var p part
	if err := json.Unmarshal([]byte(role), &p); err != nil {
		return err
	}
	level := slog.LevelError
	if os.Getenv("FAIRLEAD_TEST_LOG") != "" {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})).With("self", p.Self)
	a, err := New(Config{Interfaces: []string{"eth0"}, Self: p.Self, Members: p.Members, Password: p.Password, Log: log})
	if err != nil {
		return err
	}
	if err := serve(p.Self); err != nil {
		return err
	}
	if p.Later != nil {
		if err := a.SetMembers(p.Later); err != nil {
			return err
		}
	}
	set := func(prefixes []netip.Prefix) error {
		var routes []announce.Route
		for _, p := range prefixes {
			routes = append(routes, announce.Route{Prefix: p})
		}
		return a.Set(routes)
	}
	if err := set(p.Prefixes); err != nil {
		return err
	}
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for in.Scan() {
		if len(in.Bytes()) > 0 {
			var wishes []netip.Prefix
			if err := json.Unmarshal(in.Bytes(), &wishes); err != nil {
				return err
			}
			if err := set(wishes); err != nil {
				return err
			}
		}
		if err := out.Encode(report{a.Answered(), a.Peers()}); err != nil {
			return err
		}
	}
	return a.Close()
}

// serve tells every client who it talks to.
func serve(self netip.Addr) error {
	ln, err := net.Listen("tcp", ":80")
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(c, self)
			c.Close()
		}
	}()
	return nil
}

// actor is a member in a host of a lab.
type actor struct {
	t     *testing.T
	p     *lab.Process
	stdin interface{ Close() error }
	write func([]byte) error
	out   *bufio.Scanner
	mu    sync.Mutex
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
	write := func(b []byte) error { _, err := stdin.Write(append(b, '\n')); return err }
	return &actor{t: t, p: proc, stdin: stdin, write: write, out: out}
}

// set gives a member new wishes; nil leaves those that it has.
func (a *actor) set(wishes []netip.Prefix) (r report) {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	var line []byte
	if wishes != nil {
		line, _ = json.Marshal(wishes)
	}
	if err := a.write(line); err != nil {
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

func (a *actor) ask() report { a.t.Helper(); return a.set(nil) }

// kill ends a member without a word.
func (a *actor) kill() {
	a.t.Helper()
	if err := a.p.Kill(); err != nil {
		a.t.Fatal(err)
	}
	<-a.p.Done()
}
