package reconciler_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/source"
)

// storyNotice is the graceful shutdown period: long enough for a story to observe it on a
// busy machine.
const storyNotice = 6 * time.Second

// nodeSource adds the node state that a cluster would report to that of another source.
type nodeSource struct {
	mu      sync.Mutex
	why     []string
	last    bool
	latest  *source.Snapshot
	publish func(source.Snapshot)
}

// say accepts "cordoned", "tainted", "last" for a cordoned node without any other load
// balancer, or "well".
func (n *nodeSource) say(words []string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.why, n.last = nil, false
	for _, word := range words {
		switch word {
		case "cordoned", "tainted":
			n.why = append(n.why, "Node lb1 is "+word)
		case "last":
			n.last = true
		case "well":
		default:
			return fmt.Errorf("%s: a node is cordoned, tainted, last or well, not %s", strings.Join(words, " "), word)
		}
	}
	n.sendState()
	return nil
}

// sendState publishes the known state, if any. The lock must be held.
func (n *nodeSource) sendState() {
	if n.latest == nil {
		return
	}
	s := *n.latest
	s.Drain, s.Last = n.why, n.last
	n.publish(s)
}

// around returns the other source combined with n.
func (n *nodeSource) around(of source.Source) source.Source { return aroundNode{n, of} }

type aroundNode struct {
	*nodeSource
	of source.Source
}

func (n aroundNode) Run(ctx context.Context, publish func(source.Snapshot)) error {
	n.mu.Lock()
	n.publish, n.latest = publish, nil
	n.mu.Unlock()
	return n.of.Run(ctx, func(s source.Snapshot) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.latest = &s
		n.sendState()
	})
}
