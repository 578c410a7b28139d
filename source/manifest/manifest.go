// Package manifest reads services from a folder: the very objects that
// Kubernetes has (v1 Service and Pod, discovery.k8s.io/v1 EndpointSlice), and what is
// said of BGP (BGPPeer, Announcement, AddressPool, and Secret for passwords), as
// YAML or JSON, decoded strictly, and watched. A file's way through the package
// is internal/yamltree (lines), decode.go (the API's types), object.go (what they mean, by
// package object), folder.go (what is in force), join.go (Services with their
// servers) and routing.go (peers and announcements). It knows the API's types but no cluster, no
// kernel and no health, and whatever is refused leaves what was there before.
package manifest

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/source"
	"github.com/fairlead/fairlead/source/crd"
)

const (
	// quiet is how long events must pause before the folder is read, and
	// maxQuiet how long that may put it off.
	quiet    = 20 * time.Millisecond
	maxQuiet = 200 * time.Millisecond
	// reread is how often the folder is looked at without any event, so that
	// lost events heal; unwatched, where there are none at all.
	reread    = 3 * time.Second
	unwatched = 500 * time.Millisecond
)

// Source reads a folder and follows its changes.
type Source struct {
	dir string
	log *slog.Logger
	// balancers is the Service that the balancers themselves are behind.
	balancers service.ID
	// acceptFrom selects the Services of all load balancers.
	acceptFrom []source.Selector
	labels     map[string]string
	onPeers    func([]crd.Peer) []problem.Problem
	saved      saved
	reread     time.Duration
}

var _ source.Source = (*Source)(nil)

// New makes a Source of the folder dir. The folder need not be there yet: its
// first snapshot is published when it is.
func New(dir string, log *slog.Logger) *Source {
	return &Source{dir: dir, log: log.With("folder", dir), reread: reread}
}

// Balancers names the Service whose endpoints are the balancers themselves, so
// that those that terminate are known; the zero ID for none.
func (s *Source) Balancers(id service.ID) { s.balancers = id }

// AcceptFrom says which EndpointSlices have the load balancers from which this node's
// backends accept packets.
func (s *Source) AcceptFrom(by []source.Selector) { s.acceptFrom = by }

// Routing takes the BGPPeers and Announcements that are for a node with these
// labels. onPeers is told of the peers, by their names, when the folder has been
// read and after every change, and says what is wrong with them.
func (s *Source) Routing(labels map[string]string, onPeers func([]crd.Peer) []problem.Problem) {
	s.labels, s.onPeers = labels, onPeers
}

// Read gives what a folder would publish that has nothing but one file of this
// name and text. It is pure and takes any text.
func Read(name string, text []byte) source.Snapshot {
	d := newFolder("")
	d.files[name] = &file{}
	d.files[name].take(parseFile(name, text), time.Time{})
	return d.snapshot()
}

// Run publishes the folder's services until ctx ends. What a file held stays
// in force for as long as its text cannot be read as a whole, object by object
// where one is refused, and while the folder is gone.
func (s *Source) Run(ctx context.Context, publish func(source.Snapshot)) error {
	w := newWatch(s.dir, s.log)
	w.reread = s.reread
	defer w.close()
	d := newFolder(s.dir)
	d.balancers, d.acceptFrom, d.saved = s.balancers, s.acceptFrom, s.saved
	d.routing = routing{labels: s.labels, onPeers: s.onPeers}
	var last *source.Snapshot
	waiting := false
	for {
		// Watched first and read then, no change falls between the two.
		w.follow()
		changed, again := d.look(time.Now())
		if !d.loaded && !waiting {
			waiting = true
			s.log.Warn("waiting for the folder of manifests: it " + d.gone)
		}
		if d.loaded && (changed || len(d.routing.problems) > 0) {
			now := d.snapshot()
			if last == nil || !now.Equal(*last) {
				s.tell(last, now)
				last = &now
				publish(now)
			}
			d.save()
		}
		if !w.wait(ctx, again) {
			return nil
		}
	}
}

// tell logs what a snapshot has that the last had not.
func (s *Source) tell(last *source.Snapshot, now source.Snapshot) {
	known := map[problem.Problem]bool{}
	if last != nil {
		for _, p := range last.Problems {
			known[p] = true
		}
	}
	for _, p := range now.Problems {
		if !known[p] {
			s.log.Warn("refused", "where", p.Where, "object", p.Object, "field", p.Field, "problem", p.Message)
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
			s.log.Warn("used as it was", "object", o.Object, "where", o.Where, "since", o.Since)
		}
	}
	s.log.Info("services read", "services", len(now.Services), "problems", len(now.Problems), "stale", len(now.Stale))
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
