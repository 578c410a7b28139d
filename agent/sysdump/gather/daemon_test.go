package gather

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/api"
	"github.com/fairlead/fairlead/agent/socket"
	"github.com/fairlead/fairlead/agent/sysdump"
)

// TestAskLimit: an answer that is cut off is named.
func TestAskLimit(t *testing.T) {
	defer func(was int) { maxAnswer = was }(maxAnswer)
	maxAnswer = 1 << 20
	path := filepath.Join(t.TempDir(), "agent.sock")
	l, err := socket.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := 1 << 20
		if r.URL.Path == api.FlowsPath {
			n++
		}
		_, _ = io.WriteString(w, strings.Repeat("x", n))
	})}
	go func() { _ = srv.Serve(l) }()
	defer srv.Close()
	d := &daemon{Daemon: sysdump.Daemon{Socket: path}, texts: map[string][]byte{}, missed: map[string]error{}}
	d.ask(context.Background(), "drops.json", api.DropsPath, nil)
	d.ask(context.Background(), "flows.jsonl", api.FlowsPath, nil)
	if len(d.texts["drops.json"]) != 1<<20 || len(d.texts["flows.jsonl"]) != 1<<20 {
		t.Errorf("%d and %d bytes", len(d.texts["drops.json"]), len(d.texts["flows.jsonl"]))
	}
	if err := d.missed["flows.jsonl"]; err == nil || err.Error() != "only the first 1 MiB are here" || len(d.missed) != 1 {
		t.Errorf("missed %v", d.missed)
	}
}
