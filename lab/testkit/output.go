package testkit

import (
	"strings"
	"sync"
)

// Output collects what is written, and may be read meanwhile.
type Output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
