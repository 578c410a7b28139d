package metrics

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
)

// FuzzMetrics exports arbitrary statuses: the registry must accept all of them, so no two
// values have the same labels, and every label is UTF-8.
func FuzzMetrics(f *testing.F) {
	seeds, err := filepath.Glob("../status/testdata/*-status.json")
	if err != nil || len(seeds) == 0 {
		f.Fatal("no status to begin with")
	}
	for _, name := range seeds {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	var s status.Status
	h := Handler(func() status.Status { return s }, Options{Backends: true})
	f.Fuzz(func(t *testing.T, text []byte) {
		fuzzlimit.Time(t)
		s = status.Status{}
		if json.Unmarshal(text, &s) != nil {
			return
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		if w.Code != http.StatusOK {
			t.Errorf("%d %.300s", w.Code, w.Body)
		}
	})
}
