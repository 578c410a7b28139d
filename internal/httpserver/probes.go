package httpserver

import (
	"fmt"
	"net/http"
)

// Probes returns a handler of /livez and /readyz, which answer 503 with the reason while
// alive or ready returns one. A nil function means always; the process must answer anyway.
func Probes(alive, ready func() error) *http.ServeMux {
	mux := http.NewServeMux()
	for path, check := range map[string]func() error{"/livez": alive, "/readyz": ready} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			if check != nil {
				if err := check(); err != nil {
					http.Error(w, err.Error(), http.StatusServiceUnavailable)
					return
				}
			}
			fmt.Fprintln(w, "ok")
		})
	}
	return mux
}
