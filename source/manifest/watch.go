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

// watch reports when something in a directory, or behind a symbolic link in it, may have
// changed. It does not interpret events: the entire directory is checked.
type watch struct {
	dir     string
	log     *slog.Logger
	watcher *fsnotify.Watcher // nil if the kernel provides none
	watched os.FileInfo       // the watched directory; nil for none
	reread  time.Duration
	// behind has the directories through which symbolic links lead to manifests, with the
	// relevant names in them.
	behind map[string]map[string]bool
}

// maxBehind limits the watched directories behind links. Changes in others are noticed a
// little later.
const maxBehind = 1000

func newWatch(dir string, log *slog.Logger) *watch {
	w := &watch{dir: dir, log: log}
	var err error
	if w.watcher, err = fsnotify.NewWatcher(); err != nil {
		log.Warn("failed to watch the folder, reading it periodically", "every", unwatched, "error", err)
	}
	return w
}

func (w *watch) close() {
	if w.watcher != nil {
		w.watcher.Close()
	}
}

// follow makes sure that the directory that now has the name is watched, with those behind
// its links.
func (w *watch) follow() {
	if w.watcher == nil {
		return
	}
	w.followFolder()
	behind := w.linked()
	for dir := range w.behind {
		if behind[dir] == nil && dir != w.dir {
			_ = w.watcher.Remove(dir) // it may be gone
		}
	}
	for dir := range behind {
		if dir != w.dir && w.watcher.Add(dir) != nil { // no effect if already watched
			delete(behind, dir) // changes are noticed a little later
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
		_ = w.watcher.Remove(old) // it may be gone
	}
	w.watched, w.behind = nil, nil
	if err != nil {
		return
	}
	if err := w.watcher.Add(w.dir); err != nil {
		w.log.Warn("failed to watch the folder, reading it periodically", "every", unwatched, "error", err)
		return
	}
	w.watched = now
}

// linked returns the directories through which symbolic links lead to the directory itself
// and the manifests in it, with the relevant names in them.
func (w *watch) linked() map[string]map[string]bool {
	behind := map[string]map[string]bool{}
	matters := func(paths ...string) {
		for _, path := range paths {
			dir, name := filepath.Split(path)
			dir = filepath.Clean(dir)
			if info, err := os.Stat(dir); err != nil || w.watched != nil && os.SameFile(info, w.watched) {
				continue // the directory itself is watched
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
	entries, _ := os.ReadDir(w.dir) // the check of the directory reports the error
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink != 0 && IsManifest(e.Name()) {
			links, target := hops(filepath.Join(w.dir, e.Name()))
			matters(append(links, target)...)
		}
	}
	return behind
}

// maxHops limits the symbolic links in a path (Linux' MAXSYMLINKS).
const maxHops = 40

// hops returns the symbolic links in a path, and its final target, as far as it exists.
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

// matters reports whether an event may concern a manifest.
func (w *watch) matters(e fsnotify.Event) bool {
	dir, name := filepath.Split(e.Name)
	dir = filepath.Clean(dir)
	names, behind := w.behind[dir]
	return !behind || names[name]
}

// wait waits for events and then for a pause between them, or until the next check is due.
// It returns false when ctx ends.
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
	var pause <-chan time.Time // set after an event
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
