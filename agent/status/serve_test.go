package status

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/socket"
)

// serve runs Serve until the returned stop is called, which returns its error.
func serve(t *testing.T, path, node string) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, path, func() Status { return Status{Node: node} }) }()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { stop() })
	deadline := time.Now().Add(20 * time.Second)
	for {
		s, err := Fetch(t.Context(), path)
		if err == nil && s.Node == node {
			return stop
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not answer on %s: %v", node, path, err)
		}
		select {
		case err := <-done:
			t.Fatalf("Serve ended: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func TestFetchGetsWhatServeServes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made/on/demand/agent.sock")
	stop := serve(t, path, "node1")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("socket may be opened by others: %v", info.Mode())
	}
	if err := stop(); err != nil {
		t.Errorf("Serve: %v", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("socket left behind: %v", err)
	}
}

func TestNoAgent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	check := func(what string) {
		_, err := Fetch(t.Context(), path)
		if !errors.Is(err, socket.ErrNoAgent) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "--socket") {
			t.Errorf("%s: error %v does not name the socket and the fix", what, err)
		}
	}
	check("no file")
	leaveStale(t, path)
	check("stale file")
}

func TestFindGivesTheOneThatAnswers(t *testing.T) {
	dir := t.TempDir()
	if got, err := Find(t.Context(), dir); err != nil || got != filepath.Join(dir, "agent.sock") {
		t.Errorf("nobody: %q, %v", got, err)
	}
	leaveStale(t, filepath.Join(dir, "agent.sock"))
	router := filepath.Join(dir, "router.sock")
	serve(t, router, "router1")
	if got, err := Find(t.Context(), dir); err != nil || got != router {
		t.Errorf("one: %q, %v; want %s", got, err, router)
	}
	reflector := filepath.Join(dir, "reflector.sock")
	serve(t, reflector, "reflector1")
	if _, err := Find(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "--socket with one of "+reflector+", "+router) {
		t.Errorf("two: error %v does not name them", err)
	}
}

// leaveStale creates a socket file without a listener, as after SIGKILL.
func leaveStale(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
}

func TestStaleSocketIsTakenOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	leaveStale(t, path)
	serve(t, path, "successor")
}

func TestLivingAgentIsNotTakenOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	serve(t, path, "first")
	err := Serve(t.Context(), path, func() Status { return Status{Node: "second"} })
	if !errors.Is(err, socket.ErrInUse) || !strings.Contains(err.Error(), path) {
		t.Errorf("second agent: error %v, want %v", err, socket.ErrInUse)
	}
	if s, err := Fetch(t.Context(), path); err != nil || s.Node != "first" {
		t.Errorf("after the attempt: %q, %v; want the first still there", s.Node, err)
	}
}

// TestLeavingAgentSparesItsSuccessor checks that an agent that closes late does not
// remove the file of its successor.
func TestLeavingAgentSparesItsSuccessor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	stopOld := serve(t, path, "old")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	serve(t, path, "new")
	if err := stopOld(); err != nil {
		t.Errorf("old: %v", err)
	}
	if s, err := Fetch(t.Context(), path); err != nil || s.Node != "new" {
		t.Errorf("got %q, %v; want the new one", s.Node, err)
	}
}

func TestFolderGoneUnderTheSocket(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	stop := serve(t, filepath.Join(dir, "agent.sock"), "node1")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestWhatIsNoSocketIsSpared(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := Serve(t.Context(), path, func() Status { return Status{} })
	if err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v does not name the file", err)
	}
	if b, _ := os.ReadFile(path); string(b) != "precious" {
		t.Errorf("file now holds %q", b)
	}
}

func TestSomebodyElsesSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "other.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	other := &http.Server{Handler: http.NotFoundHandler()}
	go other.Serve(l)
	t.Cleanup(func() { other.Close() })
	if _, err := Fetch(t.Context(), path); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("error %v does not contain the response", err)
	}
}

func TestOnlyStatusIsAnswered(t *testing.T) {
	h := Handler(Everything(func() Status { return Status{Node: "n"} }))
	for _, c := range []struct {
		method, path string
		want         int
	}{
		{"GET", "/v1/status", 200}, {"HEAD", "/v1/status", 200}, {"POST", "/v1/status", 405}, {"GET", "/", 404},
	} {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(c.method, c.path, nil))
		if rec.Code != c.want {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, rec.Code, c.want)
		}
	}
}

// Endpoints are served along with the status. An error response keeps its text.
func TestEndpoints(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	l, err := socket.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Answer(ctx, l, Everything(func() Status { return Status{Node: "n"} }),
			socket.Endpoint{Pattern: "POST /v1/echo", Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })},
			socket.Endpoint{Pattern: "GET /v1/no", Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "not now: fix it", 400) })})
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	if s, err := Fetch(ctx, path); err != nil || s.Node != "n" {
		t.Errorf("status: %+v, %v", s, err)
	}
	body, err := socket.Ask(ctx, path, http.MethodPost, "/v1/echo", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if b, err := io.ReadAll(body); string(b) != "hello" || err != nil {
		t.Errorf("echo: %q, %v", b, err)
	}
	for target, want := range map[string]string{"/v1/no": "not now: fix it", "/v1/nothing?x=1": "does not know /v1/nothing: it is of another role"} {
		if _, err := socket.Ask(ctx, path, http.MethodGet, target, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", target, err)
		}
	}
}
