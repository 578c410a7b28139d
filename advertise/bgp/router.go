package bgp

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/bgp/internal/engine"
	"github.com/fairlead/fairlead/internal/wake"
)

// The router batches changes that occur together, such as all routes of a load balancer
// that went away, as long as there is one each millisecond: for 20 ms, or for as long as
// the last batch took to write, so that a long series of changes is not written one by
// one while the next ones wait.
const (
	coalesce  = time.Millisecond
	gatherFor = 20 * time.Millisecond
	gatherMax = 250 * time.Millisecond
)

// Router receives routes and computes what should be in the kernel table.
type Router struct {
	e      *engine.Engine
	accept []netip.Prefix
	held   bool
	kick   chan struct{}
	wg     sync.WaitGroup

	mu      sync.Mutex
	changed map[netip.Prefix]bool // since the last lookup
}

// NewRouter starts the sessions. change is called with the complete set of routes, sorted
// by prefix, once the sessions have settled after the start, and then whenever the set
// differs from the last one; the callee may read the list until the next call. Calls do
// not overlap. Before any session has come up, it is not called: the kernel's existing
// table is better than none.
func NewRouter(c RouterConfig, change func([]advertise.RouteSet)) (*Router, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("BGP router: %w", err)
	}
	s, err := c.setup()
	if err != nil {
		return nil, fmt.Errorf("BGP router: %w", err)
	}
	e, err := engine.Start(s)
	if err != nil {
		return nil, fmt.Errorf("BGP router: %w", err)
	}
	r := &Router{e: e, accept: c.Accept, held: c.Held, kick: make(chan struct{}, 1), changed: map[netip.Prefix]bool{}}
	e.Follow(notes{r})
	r.wg.Add(1)
	go r.follow(change)
	return r, nil
}

func (c RouterConfig) setup() (engine.Setup, error) {
	id, err := validateIdentity(c.AS, c.RouterID, c.LocalAddress)
	if err != nil {
		return engine.Setup{}, err
	}
	dials, err := dials(c.Peers, c.AS, c.LocalAddress)
	if err != nil {
		return engine.Setup{}, err
	}
	for _, d := range dials {
		d.Group.Receive, d.Group.Silent, d.Group.MaxPaths = true, true, c.MaxPrefixes
	}
	groups, err := groups(c.Groups, c.AS)
	for _, g := range groups {
		if g.SendMax != 0 {
			return engine.Setup{}, fmt.Errorf("groups[%s].sendMax: a router does not propagate routes; leave it 0", g.Name)
		}
		g.Silent = true
	}
	s := engine.Setup{AS: c.AS, RouterID: id, ClusterID: id, Groups: groups, Dials: dials, Avoids: true, MaxTotal: c.MaxTotal, Log: c.Log, Events: c.Events}
	if len(groups) > 0 {
		s.Listen = listenAddrs(c.Listen, c.Port)
	}
	return s, err
}

// notes records which prefixes changed. Their state is looked up later.
type notes struct{ *Router }

// Mark implements rib.Subscriber.
func (r notes) Mark(prefixes []netip.Prefix) {
	r.mu.Lock()
	for _, p := range prefixes {
		r.changed[p] = true
	}
	r.mu.Unlock()
	wake.Up(r.kick)
}

func (r *Router) take() []netip.Prefix {
	r.mu.Lock()
	defer r.mu.Unlock()
	prefixes := slices.Collect(maps.Keys(r.changed))
	clear(r.changed)
	return prefixes
}

// follow looks up what changed, and calls change when that makes a difference.
func (r *Router) follow(change func([]advertise.RouteSet)) {
	defer r.wg.Done()
	r.settle()
	h, last := accepted{accept: r.accept}, []advertise.RouteSet(nil)
	r.take()
	h.all(r.e.Routes())
	for first := true; r.e.Context().Err() == nil; {
		took := time.Duration(0)
		if first || !slices.EqualFunc(last, h.sets, advertise.RouteSet.Equal) {
			first, last = false, slices.Clone(h.sets)
			began := time.Now()
			change(last)
			took = time.Since(began)
		}
		if !r.await(0) {
			return
		}
		r.gather(min(max(took, gatherFor), gatherMax))
		if prefixes := r.take(); len(prefixes) > 0 {
			h.some(prefixes, r.e.Routes(prefixes...))
		}
	}
}

// await waits for an event, for at most limit; 0 means no limit.
func (r *Router) await(limit time.Duration) bool {
	var late <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-r.kick:
		return true
	case <-late:
	case <-r.e.Context().Done():
	}
	return false
}

func (r *Router) gather(limit time.Duration) {
	for end := time.Now().Add(limit); ; {
		time.Sleep(coalesce)
		select {
		case <-r.kick:
			if time.Now().After(end) {
				return
			}
		default:
			return
		}
	}
}

// Routes returns what is currently received and accepted.
func (r *Router) Routes() ([]advertise.RouteSet, error) {
	h := accepted{accept: r.accept}
	h.all(r.e.Routes())
	return h.sets, nil
}

// Refused returns the prefixes that peers advertise but that are not accepted, with the
// reason.
func (r *Router) Refused() (map[netip.Prefix]string, error) {
	h := accepted{accept: r.accept}
	h.all(r.e.Routes())
	return h.rejected, nil
}

// Peers returns the state of the sessions.
func (r *Router) Peers() []advertise.Peer { return r.e.Peers() }

// AwaitEstablished waits until the sessions with all dialed peers are up.
func (r *Router) AwaitEstablished(ctx context.Context) error { return r.e.AwaitEstablished(ctx) }

// Close ends the sessions; change is not called any more.
func (r *Router) Close() error {
	r.e.Close()
	r.wg.Wait()
	return nil
}
