package manifest

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watch reports when something in a folder, or behind a symbolic link in it, may have
// changed. Of what happened it believes nothing: the folder is looked at whole.
type watch struct {
	dir     string
	log     *slog.Logger
	watcher *fsnotify.Watcher // nil where the kernel gives none
	watched os.FileInfo       // the folder that is watched; nil for none
	reread  time.Duration
	// behind are the folders through which symbolic links lead to manifests, and the
	// names in them that matter.
	behind map[string]map[string]bool
}

// maxBehind is how many folders behind links are watched. What changes in others is
// seen a little later.
const maxBehind = 1000

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

// follow sees to it that the folder that now has the name is the one watched, and
// what its links lead through.
func (w *watch) follow() {
	if w.watcher == nil {
		return
	}
	w.followFolder()
	behind := w.linked()
	for dir := range w.behind {
		if behind[dir] == nil && dir != w.dir {
			_ = w.watcher.Remove(dir) // it may be gone already
		}
	}
	for dir := range behind {
		if dir != w.dir && w.watcher.Add(dir) != nil { // adding what is watched does nothing
			delete(behind, dir) // seen a little later
		}
	}
	w.behind = behind
}

func (w *watch) followFolder() {
	now, err := os.Stat(w.dir)
	if err == nil && w.watched != nil && os.SameFile(now, w.watched) && len(w.watcher.WatchList()) > 0 {
		return
	}
	for _, old := range w.watcher.WatchList() {
		_ = w.watcher.Remove(old) // it may be gone already
	}
	w.watched, w.behind = nil, nil
	if err != nil {
		return
	}
	if err := w.watcher.Add(w.dir); err != nil {
		w.log.Warn("the folder cannot be watched and is read again and again", "every", unwatched, "error", err)
		return
	}
	w.watched = now
}

// linked gives the folders through which the folder itself and the manifests in it are
// reached by symbolic links, and what in them matters.
func (w *watch) linked() map[string]map[string]bool {
	behind := map[string]map[string]bool{}
	matters := func(paths ...string) {
		for _, path := range paths {
			dir, name := filepath.Split(path)
			dir = filepath.Clean(dir)
			if info, err := os.Stat(dir); err != nil || w.watched != nil && os.SameFile(info, w.watched) {
				continue // the folder itself is watched whole
			}
			if behind[dir] == nil && len(behind) < maxBehind {
				behind[dir] = map[string]bool{}
			}
			if behind[dir] != nil {
				behind[dir][name] = true
			}
		}
	}
	links, _ := hops(w.dir)
	matters(links...)
	entries, _ := os.ReadDir(w.dir) // who looks at the folder says why not
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink != 0 && IsManifest(e.Name()) {
			links, target := hops(filepath.Join(w.dir, e.Name()))
			matters(append(links, target)...)
		}
	}
	return behind
}

// maxHops is how many symbolic links a path may lead through (Linux' MAXSYMLINKS).
const maxHops = 40

// hops gives the symbolic links that a path leads through, and where they lead in the
// end, as far as that is there.
func hops(path string) (links []string, target string) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, path
	}
	rest := strings.Split(abs, "/")
	target = "/"
	for len(rest) > 0 {
		next := filepath.Join(target, rest[0])
		rest = rest[1:]
		info, err := os.Lstat(next)
		if err != nil {
			return links, next
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			target = next
			continue
		}
		to, err := os.Readlink(next)
		if links = append(links, next); err != nil || len(links) > maxHops {
			return links, next
		}
		if filepath.IsAbs(to) {
			target = "/"
		}
		rest = append(strings.Split(to, "/"), rest...)
	}
	return links, target
}

// matters says that an event may be about a manifest.
func (w *watch) matters(e fsnotify.Event) bool {
	dir, name := filepath.Split(e.Name)
	dir = filepath.Clean(dir)
	names, behind := w.behind[dir]
	return !behind || names[name]
}

// wait waits for events, and then for a pause between them, or until it is
// time to look again anyway. It is false when ctx ends.
func (w *watch) wait(ctx context.Context, again time.Duration) bool {
	pace := w.reread
	if w.watched == nil {
		pace = unwatched
	}
	var events chan fsnotify.Event
	var errs chan error
	if w.watcher != nil {
		events, errs = w.watcher.Events, w.watcher.Errors
	}
	until := time.NewTimer(sooner(pace, again))
	defer until.Stop()
	var pause <-chan time.Time // once there was an event
	for {
		select {
		case <-ctx.Done():
			return false
		case <-until.C:
			return true
		case <-pause:
			return true
		case <-errs: // events were lost
		case e := <-events:
			if !w.matters(e) {
				continue
			}
		}
		if pause == nil {
			until.Reset(maxQuiet)
		}
		pause = time.After(quiet)
	}
}
