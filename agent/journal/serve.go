package journal

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/core/event"
)

// Path is where a Journal is served: events, one JSON object each, and with ?follow=true
// further ones as they happen.
const Path = "/v1/events"

// slowReader is how long a reader may take for what is sent at once.
const slowReader = 5 * time.Second

// Params returns the parameters of a request; ParseParams parses them.
func Params(q event.Query, follow bool) url.Values {
	values := url.Values{"service": {q.Service}, "follow": {strconv.FormatBool(follow)}}
	if !q.Since.IsZero() {
		values.Set("since", q.Since.Format(time.RFC3339Nano))
	}
	if q.Limit > 0 {
		values.Set("limit", strconv.Itoa(q.Limit))
	}
	for _, t := range q.Types {
		values.Add("type", string(t))
	}
	return values
}

// ParseParams parses the parameters of a request.
func ParseParams(values url.Values) (q event.Query, follow bool, err error) {
	q.Service = values.Get("service")
	follow = values.Get("follow") == "true"
	for _, t := range values["type"] {
		if _, known := event.Describe(event.Type(t)); !known {
			return q, false, fmt.Errorf("unknown event type %q: see docs/reference/events.md", t)
		}
		q.Types = append(q.Types, event.Type(t))
	}
	if text := values.Get("since"); text != "" {
		if q.Since, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return q, false, fmt.Errorf("since: %w", err)
		}
	}
	if text := values.Get("limit"); text != "" {
		if q.Limit, err = strconv.Atoi(text); err != nil || q.Limit < 0 {
			return q, false, fmt.Errorf("limit: %q is not a number of at least 0", text)
		}
	}
	return q, follow, nil
}

// ServeHTTP writes the events that a request selects. A stream ends without an error if the
// Journal is closed, or if its reader is too slow.
func (j *Journal) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q, follow, err := ParseParams(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	if !follow {
		if _, err := w.Write(lines(j.Events(q))); err != nil {
			slog.Debug("events: client disconnected", "error", err)
		}
		return
	}
	past, reader, err := j.Follow(q)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer j.Unfollow(reader)
	if err := stream(w, r, past, reader); err != nil {
		slog.Debug("events: client disconnected", "error", err)
	}
}

// stream writes past events and those that a reader receives, until one of both ends.
func stream(w http.ResponseWriter, r *http.Request, next []event.Event, reader *Reader) error {
	control := http.NewResponseController(w)
	enc := json.NewEncoder(w)
	for {
		if err := control.SetWriteDeadline(time.Now().Add(slowReader)); err != nil {
			return err
		}
		for i := range next {
			if err := enc.Encode(&next[i]); err != nil {
				return err
			}
		}
		if err := control.Flush(); err != nil {
			return err
		}
		select {
		case <-r.Context().Done():
			return nil
		case e, more := <-reader.C:
			if !more {
				return nil
			}
			next = []event.Event{e}
		}
	}
}
