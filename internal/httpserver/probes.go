package httpserver

import (
	"fmt"
	"net/http"
)

// Probes returns a handler of /livez, which answers 200 while the process answers at all,
// and /readyz, which answers 503 with the reason while ready returns one. A nil ready means
// always ready.
func Probes(ready func() error) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if ready != nil {
			if err := ready(); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}
