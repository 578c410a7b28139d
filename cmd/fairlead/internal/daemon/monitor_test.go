package daemon

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/internal/heartbeat"
)

// TestMonitorOfStuckLoop: a process that is stuck is not alive, one that waits is not ready.
func TestMonitorOfStuckLoop(t *testing.T) {
	m, err := ListenMonitor(config.Monitoring{Probe: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	rounds := heartbeat.Rounds{Limit: 1}
	addr := m.probe.Addr().(*net.TCPAddr).String()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- m.Serve(ctx, nil, rounds.Stuck, func() error { return errors.New("waits for a session") })
	}()
	probe := func(path string) (int, string) {
		resp, err := http.Get("http://" + addr + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var text strings.Builder
		_ = resp.Write(&text)
		return resp.StatusCode, text.String()
	}
	if code, text := probe("/livez"); code != http.StatusOK {
		t.Errorf("alive: %d %s", code, text)
	}
	rounds.Begin("load balancing")
	if code, text := probe("/livez"); code != http.StatusServiceUnavailable || !strings.Contains(text, "load balancing: no progress for") {
		t.Errorf("stuck: %d %s", code, text)
	}
	if code, text := probe("/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(text, "waits for a session") {
		t.Errorf("not ready: %d %s", code, text)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestMonitorWithoutSockets serves nothing until it is canceled: its end stops an agent.
func TestMonitorWithoutSockets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := false
		go func() {
			_ = Monitor{}.Serve(ctx, nil, nil, nil)
			ended = true
		}()
		synctest.Wait()
		if ended {
			t.Error("it ended at once")
		}
		cancel()
		synctest.Wait()
		if !ended {
			t.Error("it does not end")
		}
	})
}
