package status

import (
	"fmt"
	"net/http"
	"runtime/pprof"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/internal/sleep"
)

// ProfilePath is followed by the name of a profile of the process: cpu, with ?seconds=N, heap,
// goroutine and others of runtime/pprof.
const ProfilePath = "/v1/profile/"

// maxProfile limits how long a CPU profile takes.
const maxProfile = 30 * time.Second

func answerProfile(w http.ResponseWriter, r *http.Request) {
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
	if d := time.Duration(seconds * float64(time.Second)); err != nil || d <= 0 || d > maxProfile {
		http.Error(w, "seconds: want a number up to 30", http.StatusBadRequest)
		return
	}
	if err := pprof.StartCPUProfile(w); err != nil { // another one is running
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	defer pprof.StopCPUProfile()
	sleep.For(r.Context(), time.Duration(seconds*float64(time.Second)))
}
