package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fairlead/fairlead/agent/socket"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/cmd/internal/cli"
	"github.com/fairlead/fairlead/cmd/internal/clitest"
	"github.com/fairlead/fairlead/internal/logging"
	"github.com/fairlead/fairlead/vdn/access"
	"github.com/fairlead/fairlead/vdn/server"
	"github.com/fairlead/fairlead/vdn/store"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"fairlead": main})
}

// TestScripts runs the command lines in testdata/script. There, "agent SOCKET FILE"
// starts to serve the Status in a file on a socket, "controller SOCKET" starts a VDN
// controller there, and "failed COMMAND..." and "usage COMMAND..." require exit codes 1
// and 2.
func TestScripts(t *testing.T) {
	slog.SetDefault(logging.New(os.Stderr).Logger()) // as in the daemons that the scripts query
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"agent": answerAs, "controller": controlVDN, "failed": clitest.Exits(cli.ExitFailed), "usage": clitest.Exits(cli.ExitUsage),
		},
	})
}

func answerAs(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: agent SOCKET FILE")
	}
	var s status.Status
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[1])), &s))
	socket := ts.MkAbs(args[0])
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- status.Serve(ctx, socket, func() status.Status { return s }) }()
	ts.Defer(func() {
		cancel()
		ts.Check(<-done)
	})
	deadline := time.Now().Add(20 * time.Second)
	for {
		if _, err := status.Fetch(ctx, socket); err == nil {
			return
		} else if time.Now().After(deadline) {
			ts.Fatalf("no answer on %s: %v", socket, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// controlVDN starts a controller, which is ready when this returns.
func controlVDN(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: controller SOCKET [ACCESS-FILE]")
	}
	var o server.Options
	if len(args) == 2 {
		tokens, err := access.Open(ts.MkAbs(args[1]), nil, slog.Default())
		ts.Check(err)
		o.Tokens = tokens
	}
	kept, err := store.Open(ts.MkAbs("data"), "daejeon.example")
	ts.Check(err)
	l, err := socket.Listen(ts.MkAbs(args[0]))
	ts.Check(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	o.Store = kept
	go func() { done <- server.New(o).Serve(ctx, l) }()
	ts.Defer(func() {
		cancel()
		ts.Check(errors.Join(<-done, kept.Close()))
	})
}
