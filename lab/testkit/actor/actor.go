// Package actor runs helper processes of a test, in hosts of a lab, which the test can
// control and kill: the test's own binary, with its role in an environment variable.
// Orders go in and reports come out, one line of JSON each.
package actor

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab"
)

const variable = "FAIRLEAD_TEST_PART"

// Play must be called first in TestMain. In a process that Start has started it plays the
// role and exits; otherwise it does nothing.
func Play[Part any](play func(Part) error) {
	text := os.Getenv(variable)
	if text == "" {
		return
	}
	var p Part
	err := json.Unmarshal([]byte(text), &p)
	if err == nil {
		err = play(p)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Serve is for play: it handles orders until its input ends.
func Serve[Order, Report any](do func(Order) Report, end func() error) error {
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var o Order
		if err := json.Unmarshal(in.Bytes(), &o); err != nil {
			return err
		}
		if err := out.Encode(do(o)); err != nil {
			return err
		}
	}
	return end()
}

// Actor is a process with a role.
type Actor[Order, Report any] struct {
	*lab.Process
	t   testing.TB
	in  io.WriteCloser
	out *bufio.Scanner
	mu  sync.Mutex
}

// Start starts a process in a host. It ends with the test at the latest.
func Start[Order, Report, Part any](t testing.TB, h *lab.Host, p Part) *Actor[Order, Report] {
	t.Helper()
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env, cmd.Stderr = append(os.Environ(), variable+"="+string(b)), os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = w
	process, err := h.Start(cmd)
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { process.Kill(); <-process.Done(); r.Close(); stdin.Close() })
	out := bufio.NewScanner(r)
	out.Buffer(nil, 1<<20)
	return &Actor[Order, Report]{Process: process, t: t, in: stdin, out: out}
}

// Send sends an order, and returns its report.
func (a *Actor[Order, Report]) Send(o Order) (r Report) {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := json.NewEncoder(a.in).Encode(o); err != nil {
		a.t.Fatal(err)
	}
	if !a.out.Scan() {
		a.t.Fatalf("no report from process %d: %v", a.PID(), a.out.Err())
	}
	if err := json.Unmarshal(a.out.Bytes(), &r); err != nil {
		a.t.Fatal(err)
	}
	return r
}

// Query returns a report for an empty order.
func (a *Actor[Order, Report]) Query() Report {
	a.t.Helper()
	var none Order
	return a.Send(none)
}

// End lets the process exit normally, and waits for it.
func (a *Actor[Order, Report]) End() {
	a.t.Helper()
	a.in.Close()
	select {
	case <-a.Done():
	case <-time.After(20 * time.Second):
		a.t.Fatalf("process %d does not exit", a.PID())
	}
}
