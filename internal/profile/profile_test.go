package profile

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestServe(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Path+"{name}", Serve)
	for path, code := range map[string]int{"heap": 200, "goroutine": 200, "cpu?seconds=0.01": 200, "cpu": 400, "cpu?seconds=31": 400, "cpu?seconds=NaN": 400, "nosuch": 400} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, Path+path, nil))
		if w.Code != code || code == 200 && w.Body.Len() == 0 {
			t.Errorf("%s: %d, %d bytes", path, w.Code, w.Body.Len())
		}
	}
}
