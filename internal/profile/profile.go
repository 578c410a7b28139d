// Package profile serves CPU, heap and other profiles of a process (runtime/pprof), without
// what net/http/pprof registers for everybody.
package profile

import (
	"fmt"
	"net/http"
	"runtime/pprof"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/internal/sleep"
)

// Path is followed by the name of a profile of the process: cpu, with ?seconds=N, heap,
// goroutine and others of runtime/pprof.
const Path = "/v1/profile/"

// most limits how long a CPU profile takes.
const most = 30 * time.Second

// Serve answers a request for Path followed by {name}.
func Serve(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	if p := pprof.Lookup(name); p != nil {
		_ = p.WriteTo(w, 0) // the client may be gone
		return
	}
	if name != "cpu" {
		http.Error(w, fmt.Sprintf("unknown profile %q", name), http.StatusBadRequest)
		return
	}
	seconds, err := strconv.ParseFloat(r.URL.Query().Get("seconds"), 64)
	during := time.Duration(seconds * float64(time.Second))
	if err != nil || during <= 0 || during > most {
		http.Error(w, "seconds: want a number up to 30", http.StatusBadRequest)
		return
	}
	if err := pprof.StartCPUProfile(w); err != nil { // another one is running
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	defer pprof.StopCPUProfile()
	sleep.For(r.Context(), during)
}
