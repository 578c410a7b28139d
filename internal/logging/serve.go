package logging

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"time"
)

// Path is where a process serves the level of its log: GET returns the State, POST changes
// it (?level=debug&for=10m) and returns the new one.
const Path = "/v1/log-level"

// Serve answers a request for Path for the log that slog writes to.
func Serve(w http.ResponseWriter, r *http.Request) {
	l := Of(slog.Default())
	if l == nil {
		http.Error(w, "the log of this process has no level that can be changed", http.StatusBadRequest)
		return
	}
	s := l.State()
	if r.Method == http.MethodPost {
		level, duration, err := change(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s = l.SetLevel(level, duration)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s) // the client is gone
}

// ParseLevel parses the level of a request.
func ParseLevel(text string) (level slog.Level, err error) {
	if level.UnmarshalText([]byte(text)) != nil {
		return 0, fmt.Errorf("%q is none of debug, info, warn and error", text)
	}
	return level, nil
}

func change(r *http.Request) (level slog.Level, duration time.Duration, err error) {
	q := r.URL.Query()
	if level, err = ParseLevel(q.Get("level")); err != nil {
		return 0, 0, fmt.Errorf("level: %w", err)
	}
	if text := q.Get("for"); text != "" {
		if duration, err = time.ParseDuration(text); err != nil || duration < 0 {
			return 0, 0, fmt.Errorf("for: %q is not a duration like 10m", text)
		}
	}
	return level, duration, nil
}
