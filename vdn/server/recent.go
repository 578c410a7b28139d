package server

import (
	"encoding/json"
	"sync"
)

// recent remembers the last response to each polling client, so that the revision only
// changes if the client's content does.
type recent struct {
	mu   sync.Mutex
	sent map[string]sent
}

type sent struct {
	revision uint64
	content  string // JSON
}

// revision returns the revision with which the content was first sent, or the current one
// if it is new.
func (r *recent) revision(who string, now uint64, content any) uint64 {
	b, err := json.Marshal(content)
	if err != nil {
		return now
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sent == nil {
		r.sent = map[string]sent{}
	}
	if t, ok := r.sent[who]; ok && t.content == string(b) {
		return t.revision
	} else if ok && t.revision > now {
		return now // a newer one has been sent already
	}
	r.sent[who] = sent{now, string(b)}
	return now
}

// forget removes a client.
func (r *recent) forget(who string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sent, who)
}
