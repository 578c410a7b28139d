package healthport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/testkit"
)

var web = service.ID{Namespace: "default", Name: "web"}

func TestMain(m *testing.M) { testkit.Main(m) }

// start runs a server on all addresses.
func start(t *testing.T, healthy func() bool, addrs ...netip.Addr) *Server {
	s := New(Config{Addresses: addrs, Healthy: healthy, Retry: 20 * time.Millisecond, Log: slog.New(slog.DiscardHandler)})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

// Ports that nothing else uses in the sandbox.
const portA, portB = 32000, 32001

func always() bool { return true }

// ask returns the status, the weight and the body; 0 if nothing listens.
func ask(t *testing.T, host string, port uint16) (int, string, string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	r, err := client.Get("http://" + netip.AddrPortFrom(netip.MustParseAddr(host), port).String())
	if err != nil {
		if strings.Contains(err.Error(), "refused") {
			return 0, "", ""
		}
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	if r.Header.Get("Content-Type") != "application/json" || r.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("headers %v", r.Header)
	}
	return r.StatusCode, r.Header.Get("X-Load-Balancing-Endpoint-Weight"), string(body)
}

func expect(t *testing.T, host string, port uint16, status int, weight string) {
	t.Helper()
	if got, w, _ := ask(t, host, port); got != status || w != weight {
		t.Errorf("%s port %d: status %d, weight %q; want %d, %q", host, port, got, w, status, weight)
	}
}

// TestTheAnswerIsKubeProxys compares it byte by byte.
func TestTheAnswerIsKubeProxys(t *testing.T) {
	start(t, always).Set(web, proxy.HealthCheck{Port: portA, IPv4: true, Ready4: 2})
	status, weight, body := ask(t, "127.0.0.1", portA)
	const want = "{\n\t\"service\": {\n\t\t\"namespace\": \"default\",\n\t\t\"name\": \"web\"\n\t},\n\t\"localEndpoints\": 2,\n\t\"serviceProxyHealthy\": true\n}"
	if status != 200 || weight != "2" || body != want {
		t.Errorf("status %d, weight %s, body\n%s\nwant 200, 2,\n%s", status, weight, body, want)
	}
}

func TestAnswersFollowTheService(t *testing.T) {
	var ill atomic.Bool
	s := start(t, func() bool { return !ill.Load() })
	expect(t, "127.0.0.1", portA, 0, "")
	s.Set(web, proxy.HealthCheck{Port: portA, IPv4: true, IPv6: true, Ready4: 1})
	expect(t, "127.0.0.1", portA, 200, "1")
	expect(t, "::1", portA, 503, "0")
	s.Set(web, proxy.HealthCheck{Port: portA, IPv4: true, IPv6: true, Ready6: 3})
	expect(t, "127.0.0.1", portA, 503, "0")
	expect(t, "::1", portA, 200, "3")
	ill.Store(true)
	expect(t, "::1", portA, 503, "3")
	ill.Store(false)
	s.Set(web, proxy.HealthCheck{Port: portB, IPv6: true, Ready6: 3})
	expect(t, "127.0.0.1", portB, 0, "")
	expect(t, "::1", portB, 200, "3")
	expect(t, "::1", portA, 0, "")
	s.Set(web, proxy.HealthCheck{})
	expect(t, "::1", portB, 0, "")
	if len(s.ports) != 0 {
		t.Errorf("%d ports are left", len(s.ports))
	}
}

// TestAPortInUseIsTriedAgain: first another process uses it, then another Service.
func TestAPortInUseIsTriedAgain(t *testing.T) {
	s := start(t, always)
	taken, err := net.Listen("tcp6", netip.AddrPortFrom(netip.IPv6Loopback(), portA).String())
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	check := proxy.HealthCheck{Port: portA, IPv4: true, IPv6: true, Ready4: 1, Ready6: 1}
	s.Set(web, check)
	problems := s.Problems()
	if len(problems) != 1 || problems[0].Service != web || problems[0].Field != "spec.healthCheckNodePort" ||
		!strings.Contains(problems[0].Message, "address already in use") {
		t.Fatalf("problems %v", problems)
	}
	testkit.Eventually(t, 10*time.Second, func() error { // all or nothing, except during an attempt
		c, err := net.Dial("tcp", netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), portA).String())
		if err == nil {
			c.Close()
		}
		if !errors.Is(err, unix.ECONNREFUSED) {
			return fmt.Errorf("connecting gave %v, want it refused", err)
		}
		return nil
	})
	taken.Close()
	for deadline := time.Now().Add(10 * time.Second); len(s.Problems()) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the port is not tried again")
		}
	}
	expect(t, "127.0.0.1", portA, 200, "1")
	expect(t, "::1", portA, 200, "1")

	next := service.ID{Namespace: "default", Name: "next"}
	check.Ready4 = 7
	s.Set(next, check)
	if p := s.Problems(); len(p) != 1 || p[0].Service != next {
		t.Fatalf("problems %v", p)
	}
	s.Set(web, proxy.HealthCheck{}) // and next gets it immediately
	expect(t, "127.0.0.1", portA, 200, "7")
	if p := s.Problems(); len(p) != 0 {
		t.Errorf("problems %v", p)
	}
}

// TestOnlySomeAddresses includes one that the node does not have.
func TestOnlySomeAddresses(t *testing.T) {
	s := start(t, always, netip.MustParseAddr("127.0.0.2"), netip.IPv6Loopback(), netip.MustParseAddr("2001:db8::1"))
	s.Set(web, proxy.HealthCheck{Port: portA, IPv4: true, Ready4: 1})
	expect(t, "127.0.0.2", portA, 200, "1")
	expect(t, "127.0.0.1", portA, 0, "")
	s.Set(web, proxy.HealthCheck{Port: portA, IPv6: true, Ready6: 1})
	expect(t, "127.0.0.2", portA, 0, "")
	if p := s.Problems(); len(p) != 1 || !strings.Contains(p[0].Message, "2001:db8::1") {
		t.Errorf("problems %v", p)
	}
}

func TestNothingListensAfterTheEnd(t *testing.T) {
	s := New(Config{Healthy: always, Retry: time.Hour, Log: slog.New(slog.DiscardHandler)})
	s.Set(web, proxy.HealthCheck{Port: portA, IPv4: true})
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := s.Run(ctx); err != nil {
		t.Fatal(err)
	}
	expect(t, "127.0.0.1", portA, 0, "")
	s.Set(service.ID{Name: "late"}, proxy.HealthCheck{Port: portA, IPv4: true})
	expect(t, "127.0.0.1", portA, 0, "")
}

func TestHealthz(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name         string
		last, waits  time.Time
		eligible     bool
		health, live int
	}{
		{"has just begun", time.Time{}, time.Time{}, true, 200, 200},
		{"synced, nothing waits", now.Add(-time.Hour), time.Time{}, true, 200, 200},
		{"something waits, not for long", now.Add(-time.Hour), now.Add(-time.Second), true, 200, 200},
		{"something waits for long", now.Add(-time.Hour), now.Add(-2 * time.Minute), true, 503, 503},
		{"could never write", time.Time{}, now.Add(-2 * time.Minute), true, 503, 503},
		{"the node is to be deleted", now.Add(-time.Hour), time.Time{}, false, 503, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := &Healthz{
				Sync: func() (time.Time, time.Time) { return c.last, c.waits }, Timeout: DefaultTimeout, Eligible: func() bool { return c.eligible },
			}
			if h.Healthy() != (c.live == 200) {
				t.Errorf("Healthy gives %t", h.Healthy())
			}
			srv := httptest.NewServer(h.Handler())
			defer srv.Close()
			for path, want := range map[string]int{"/healthz": c.health, "/livez": c.live} {
				r, err := http.Get(srv.URL + path)
				if err != nil {
					t.Fatal(err)
				}
				defer r.Body.Close()
				var got status
				decoder := json.NewDecoder(r.Body)
				decoder.DisallowUnknownFields()
				if err := decoder.Decode(&got); err != nil {
					t.Fatal(err)
				}
				if r.StatusCode != want || got.Healthy != (c.live == 200) || r.Header.Get("Content-Type") != "application/json" {
					t.Errorf("%s: status %d, %+v; want %d", path, r.StatusCode, got, want)
				}
				if has := got.NodeEligible != nil; has != (path == "/healthz") || has && *got.NodeEligible != c.eligible {
					t.Errorf("%s: nodeEligible %v", path, got.NodeEligible)
				}
				if fresh := got.LastUpdated.Equal(got.CurrentTime); fresh != (want == 200) || !fresh && !got.LastUpdated.Equal(c.last) {
					t.Errorf("%s: last updated %s at %s", path, got.LastUpdated, got.CurrentTime)
				}
				if both := len(got.Status) == 2; both == c.last.IsZero() || both && got.Status["IPv6"].Healthy != got.Healthy {
					t.Errorf("%s: status of the families %v", path, got.Status)
				}
			}
		})
	}
}
