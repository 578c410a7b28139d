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
	"os"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/fairlead/fairlead/kube/v1alpha1"
	"github.com/fairlead/fairlead/service"
	"github.com/fairlead/fairlead/source"
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
	onPeers    func([]v1alpha1.Peer) []source.Problem
}

var _ source.Source = (*Source)(nil)

// New makes a Source of the folder dir. The folder need not be there yet: its
// first snapshot is published when it is.
func New(dir string, log *slog.Logger) *Source {
	return &Source{dir: dir, log: log.With("folder", dir)}
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
func (s *Source) Routing(labels map[string]string, onPeers func([]v1alpha1.Peer) []source.Problem) {
	s.labels, s.onPeers = labels, onPeers
}

// Read gives what a folder would publish that has nothing but one file of this
// name and text. It is pure and takes any text.
func Read(name string, text []byte) source.Snapshot {
	d := newFolder("")
	d.files[name] = &file{}
	d.files[name].take(parseFile(name, text))
	return d.snapshot()
}

// Run publishes the folder's services until ctx ends. What a file held stays
// in force for as long as its text cannot be read as a whole, object by object
// where one is refused, and while the folder is gone.
func (s *Source) Run(ctx context.Context, publish func(source.Snapshot)) error {
	w := newWatch(s.dir, s.log)
	defer w.close()
	d := newFolder(s.dir)
	d.balancers, d.acceptFrom = s.balancers, s.acceptFrom
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
		}
		if !w.wait(ctx, again) {
			return nil
		}
	}
}

// tell logs what a snapshot has that the last had not.
func (s *Source) tell(last *source.Snapshot, now source.Snapshot) {
	known := map[source.Problem]bool{}
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
	s.log.Info("services read", "services", len(now.Services), "problems", len(now.Problems))
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// watch tells when something in a folder may have changed. Of what happened it
// believes nothing: the folder is looked at whole.
type watch struct {
	dir     string
	log     *slog.Logger
	watcher *fsnotify.Watcher // nil where the kernel gives none
	watched os.FileInfo       // the folder that is watched; nil for none
}

func newWatch(dir string, log *slog.Logger) *watch {
	w := &watch{dir: dir, log: log}
	var err error
	if w.watcher, err = fsnotify.NewWatcher(); err != nil {
		log.Warn("the folder cannot be watched and is read again and again", "every", unwatched, "error", err)
	}
	return w
}

func (w *watch) close() {
	if w.watcher != nil {
		w.watcher.Close()
	}
}

// follow sees to it that the folder that now has the name is the one watched.
func (w *watch) follow() {
	now, err := os.Stat(w.dir)
	if w.watcher == nil || err == nil && w.watched != nil && os.SameFile(now, w.watched) && len(w.watcher.WatchList()) > 0 {
		return
	}
	for _, old := range w.watcher.WatchList() {
		_ = w.watcher.Remove(old) // it may be gone already
	}
	w.watched = nil
	if err != nil {
		return
	}
	if err := w.watcher.Add(w.dir); err != nil {
		w.log.Warn("the folder cannot be watched and is read again and again", "every", unwatched, "error", err)
		return
	}
	w.watched = now
}

// wait waits for events, and then for a pause between them, or until it is
// time to look again anyway. It is false when ctx ends.
func (w *watch) wait(ctx context.Context, again time.Duration) bool {
	pace := reread
	if w.watched == nil {
		pace = unwatched
	}
	pace = sooner(pace, again)
	var events chan fsnotify.Event
	var errs chan error
	if w.watcher != nil {
		events, errs = w.watcher.Events, w.watcher.Errors
	}
	until := time.NewTimer(pace)
	defer until.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-until.C:
		return true
	case <-errs: // events were lost
	case <-events:
	}
	until.Reset(maxQuiet)
	for {
		select {
		case <-ctx.Done():
			return false
		case <-until.C:
			return true
		case <-errs:
		case <-events:
		case <-time.After(quiet):
			return true
		}
	}
}
