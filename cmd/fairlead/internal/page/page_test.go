package page

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/socket"
	"github.com/fairlead/fairlead/agent/status"
)

// TestConnect asks an agent through the command, twice on one connection.
func TestConnect(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	l, err := socket.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		served <- status.Answer(ctx, l, status.Everything(func() status.Status { return status.Status{Node: "n1", Time: time.Now()} }))
	}()
	in, request := io.Pipe()
	answer, out := io.Pipe()
	cmd := NewConnect()
	cmd.SetArgs([]string{"--socket", path})
	cmd.SetIn(in)
	cmd.SetOut(out)
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	reader := bufio.NewReader(answer)
	for range 2 {
		if _, err := io.WriteString(request, "GET /v1/status HTTP/1.1\r\nHost: agent\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(reader, nil)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%v, %v", resp, err)
		}
		if body, err := io.ReadAll(resp.Body); err != nil || len(body) == 0 {
			t.Errorf("%q, %v", body, err)
		}
	}
	request.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
