// Package manifest reads services from a directory: Kubernetes objects (v1 Service and Pod,
// discovery.k8s.io/v1 EndpointSlice) and BGP configuration (BGPPeer, Advertisement,
// AddressPool, and Secret for passwords), as YAML or JSON, decoded strictly, and watched. A
// file passes through internal/yamltree (lines), decode.go (the API's types), object.go
// (conversion, with package object), folder.go (what is in force), join.go (Services with
// their backends) and routing.go (peers and advertisements). The package knows the API's
// types but no cluster, kernel or health checks. A rejected change keeps the previous
// version.
package manifest

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/source"
	"github.com/fairlead/fairlead/source/crd"
)

const (
	// quiet is how long events must pause before the directory is read, and maxQuiet limits
	// the delay.
	quiet    = 20 * time.Millisecond
	maxQuiet = 200 * time.Millisecond
	// reread is the interval of checks without an event, in case events were lost;
	// unwatched applies if there are no events at all.
	reread    = 3 * time.Second
	unwatched = 500 * time.Millisecond
)

// Source reads a directory and follows its changes.
type Source struct {
	dir string
	log *slog.Logger
	// balancers is the Service of the balancers themselves.
	balancers service.ID
	// acceptFrom selects the Services of all load balancers.
	acceptFrom []source.Selector
	labels     map[string]string
	onPeers    func([]crd.Peer) []problem.Problem
	saved      saved
	reread     time.Duration

	mu     sync.Mutex // for Preview
	folder *folder    // of Run
}

var _ source.Source = (*Source)(nil)

// New creates a Source for the directory dir. If the directory does not exist yet, the
// first snapshot is published once it does.
func New(dir string, log *slog.Logger) *Source {
	return &Source{dir: dir, log: log.With("folder", dir), reread: reread}
}

// Balancers sets the Service whose endpoints are the balancers themselves, used to detect
// terminating ones; the zero ID for none.
func (s *Source) Balancers(id service.ID) { s.balancers = id }

// AcceptFrom selects the EndpointSlices of the load balancers from which this node's
// backends accept packets.
func (s *Source) AcceptFrom(by []source.Selector) { s.acceptFrom = by }

// Routing uses the BGPPeers and Advertisements for a node with these labels. onPeers is
// called with the peers, sorted by name, when the directory has been read and after every
// change, and returns their problems.
func (s *Source) Routing(labels map[string]string, onPeers func([]crd.Peer) []problem.Problem) {
	s.labels, s.onPeers = labels, onPeers
}

// Read returns what a directory with only one file of this name and text would publish. It
// is pure and accepts any text.
func Read(name string, text []byte) source.Snapshot {
	d := newFolder("")
	d.files[name] = &file{}
	d.files[name].take(parseFile(name, text), time.Time{})
	return d.snapshot()
}

// Run publishes the directory's services until ctx ends. The content of a file stays in
// force while its text is invalid, object by object if only some are rejected, and while
// the directory is missing.
func (s *Source) Run(ctx context.Context, publish func(source.Snapshot)) error {
	w := newWatch(s.dir, s.log)
	w.reread = s.reread
	defer w.close()
	d := newFolder(s.dir)
	d.balancers, d.acceptFrom, d.saved = s.balancers, s.acceptFrom, s.saved
	d.routing = routing{labels: s.labels, onPeers: s.onPeers}
	s.mu.Lock()
	s.folder = d
	s.mu.Unlock()
	var last *source.Snapshot
	waiting := false
	for {
		// Watch first and then read, so that no change is missed in between.
		w.follow()
		now, again := s.read(d)
		if !d.loaded && !waiting {
			waiting = true
			s.log.Warn("waiting for the folder of manifests: it " + d.gone)
		}
		if now != nil {
			if last == nil || !now.Equal(*last) {
				s.logChanges(last, *now)
				last = now
				publish(*now)
			}
			s.save(d)
		}
		if !w.wait(ctx, again) {
			return nil
		}
	}
}

// read reads what is new, and returns a snapshot if there may be a change.
func (s *Source) read(d *folder) (now *source.Snapshot, again time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed, again := d.look(time.Now())
	if d.loaded && (changed || len(d.routing.problems) > 0) {
		snapshot := d.snapshot()
		now = &snapshot
	}
	return now, again
}

func (s *Source) save(d *folder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d.save()
}

// logChanges logs what is new in a snapshot.
func (s *Source) logChanges(last *source.Snapshot, now source.Snapshot) {
	known := map[problem.Problem]bool{}
	if last != nil {
		for _, p := range last.Problems {
			known[p] = true
		}
	}
	for _, p := range now.Problems {
		if !known[p] {
			s.log.Warn("manifest rejected", "where", p.Where, "object", p.Object, "field", p.Field, "error", p.Message)
		}
	}
	stale := map[source.Stale]bool{}
	if last != nil {
		for _, o := range last.Stale {
			stale[o] = true
		}
	}
	for _, o := range now.Stale {
		if !stale[o] {
			s.log.Warn("last change rejected, the previous version stays in use", "object", o.Object, "where", o.Where, "since", o.Since)
		}
	}
	s.log.Info("services read", "services", len(now.Services), "problems", len(now.Problems), "stale", len(now.Stale))
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
