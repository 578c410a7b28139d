package server

import (
	"encoding/json"
	"sync"
)

// recent remembers what was told last to each who asks again and again, so that
// only what is new for him has a new revision.
type recent struct {
	mu   sync.Mutex
	told map[string]told
}

type told struct {
	revision uint64
	content  string // JSON
}

// revision gives that of the content: the one it was first told with, else the
// present one.
func (r *recent) revision(who string, now uint64, content any) uint64 {
	b, err := json.Marshal(content)
	if err != nil {
		return now
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told == nil {
		r.told = map[string]told{}
	}
	if t, ok := r.told[who]; ok && t.content == string(b) {
		return t.revision
	} else if ok && t.revision > now {
		return now // a newer one is told already
	}
	r.told[who] = told{now, string(b)}
	return now
}

// forget drops who asks no more.
func (r *recent) forget(who string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.told, who)
}
