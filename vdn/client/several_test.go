package client

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/vdn"
)

// controllerThat starts a controller that responds with a status and counts requests.
func controllerThat(t *testing.T, status int) (url string, asked *atomic.Int64, end func()) {
	t.Helper()
	asked = &atomic.Int64{}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"error":"as configured"}`))
	}))
	t.Cleanup(web.Close)
	return web.URL, asked, web.Close
}

// deaf returns an address that accepts connections and never responds.
func deaf(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return "http://" + l.Addr().String()
}

// TestTheNextIsAsked checks that the client skips controllers that are down, unresponsive
// or unavailable, and then prefers the one that responded. It does not skip one that
// rejects the request.
func TestTheNextIsAsked(t *testing.T) {
	const gone = "http://127.0.0.1:1"
	well, asked, end := controllerThat(t, http.StatusNoContent)
	cannot, _, _ := controllerThat(t, http.StatusServiceUnavailable)
	c, err := New(Config{URL: strings.Join([]string{gone, deaf(t), cannot, well}, ", "), Timeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := c.Detach(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
	}
	states := c.Controllers()
	for i, want := range []string{"cannot reach the VDN controller at " + gone, "context deadline exceeded", "is unavailable: as configured", ""} {
		if s := states[i]; !s.Asked || s.Reachable != (want == "") || !strings.Contains(s.Error, want) {
			t.Errorf("controller %d: %+v, want %q", i, s, want)
		}
	}
	if n := asked.Load(); n != 3 {
		t.Errorf("the one that answers is asked %d times", n)
	}
	end()
	err = c.Detach(t.Context(), "x")
	if !IsUnavailable(err) || !strings.Contains(err.Error(), gone+": ") || !strings.Contains(err.Error(), cannot+" is unavailable: as configured") {
		t.Errorf("nobody answers: %v", err)
	}
	refuses, asked, _ := controllerThat(t, http.StatusForbidden)
	if c, err = New(Config{URL: refuses + "," + well}); err != nil {
		t.Fatal(err)
	}
	if err := c.Detach(t.Context(), "x"); !IsStatus(err, http.StatusForbidden) || asked.Load() != 1 {
		t.Errorf("a refusal: %v, asked %d times", err, asked.Load())
	}
}

// TestReportsGoToAll checks that every controller receives a node's report, and that an
// unresponsive one delays nobody.
func TestReportsGoToAll(t *testing.T) {
	one, receivedOne, _ := controllerThat(t, http.StatusNoContent)
	two, receivedTwo, _ := controllerThat(t, http.StatusNoContent)
	c, err := New(Config{URL: one + "," + deaf(t) + "," + two, Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for receivedOne.Load() < 3 || receivedTwo.Load() < 3 {
		if err := c.Report(t.Context(), vdn.NodeReport{Node: vdn.Node{Name: "n1"}}); err != nil {
			t.Fatal(err)
		}
		if time.Since(began) > 20*time.Second {
			t.Fatalf("received %d and %d reports", receivedOne.Load(), receivedTwo.Load())
		}
	}
	if c, err = New(Config{URL: "http://127.0.0.1:1,http://127.0.0.1:2"}); err != nil {
		t.Fatal(err)
	}
	if err := c.Report(t.Context(), vdn.NodeReport{}); !IsUnavailable(err) || !strings.Contains(err.Error(), "127.0.0.1:1") || !strings.Contains(err.Error(), "127.0.0.1:2") {
		t.Errorf("no controller is reachable: %v", err)
	}
}
