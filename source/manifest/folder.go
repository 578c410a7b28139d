package manifest

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/source"
	"github.com/fairlead/fairlead/source/object"
)

const (
	// settle is how long a change that may be incomplete must remain unchanged before it is
	// accepted.
	settle = 200 * time.Millisecond
	// goneAfter is how long a file must be missing, with nothing else in its directory
	// changing, before its objects are removed. Editors, "rm -r" and "git checkout" remove
	// files briefly.
	goneAfter = time.Second
	// racy is the age below which a file is read again even if its size and time are
	// unchanged.
	racy = 2 * time.Second
	// maxText limits the size of a file, in bytes.
	maxText = 256 << 20
)

// folder is the content of a directory of manifests at the last check, file by file, and
// what of it is in force.
type folder struct {
	dir string
	// cluster means that the manifests are for a cluster, not for a directory of an agent.
	cluster bool
	files   map[string]*file
	joiner  joiner
	// saved is the state that outlives the agent.
	saved saved
	// inUse are the files whose objects were last in use.
	inUse map[object.Key]string
	// routing is the BGP configuration in the objects.
	routing routing
	// balancers is the Service whose endpoints are balancers; zero for none.
	balancers service.ID
	// acceptFrom selects the EndpointSlices of all load balancers.
	acceptFrom []source.Selector
	// loaded is true once the directory has been read.
	loaded bool
	// gone is why the directory cannot be read at present.
	gone string
	// strange are problems with entries that are not manifests.
	strange []problem.Problem
	// changed is when a change was last seen.
	changed time.Time
}

func newFolder(dir string) *folder { return &folder{dir: dir, files: map[string]*file{}} }

// file is one file: its objects in force and the problems of its current text.
type file struct {
	cluster  bool // as of the folder
	objects  []*object.Object
	problems []problem.Problem
	// refused are the objects of the current text that are rejected.
	refused []object.Key
	// stale has the objects in force that differ from the current text, and the time of the change;
	// unused those that are not in use because another file has the same key.
	stale  map[object.Key]time.Time
	unused map[object.Key]bool
	// lost is why the last valid objects of the file are unavailable.
	lost string
	// text is the last accepted text, until it is saved; unsaved means that something has
	// changed since.
	text    []byte
	unsaved bool

	sum    [sha256.Size]byte // of the accepted text
	taken  os.FileInfo       // the file that it was read from; nil for none
	seen   os.FileInfo       // the file at the last check
	seenAt time.Time

	// waiting is a text that was seen but is not yet accepted.
	waiting     *parsed
	waitingText []byte
	waitingSum  [sha256.Size]byte
	since       time.Time
	// missing is when the file disappeared.
	missing time.Time
	// unread is why the file cannot be read, and unreadSince the time of the first failure.
	unread      string
	unreadSince time.Time
}

// look reads what is new. It reports whether anything relevant has changed, and when to
// check again at the latest; 0 for no deadline.
func (d *folder) look(now time.Time) (changed bool, again time.Duration) {
	strange := d.strange
	names, err := d.list()
	if err != nil {
		if !d.loaded {
			d.restoreAll(now)
		}
		why := "cannot be read: " + err.Error()
		if errors.Is(err, fs.ErrNotExist) {
			why = "is gone"
		}
		changed = d.gone != why
		d.gone = why
		return changed, settle
	}
	if changed = d.gone != "" || !d.loaded || !slices.Equal(strange, d.strange); changed {
		d.gone, d.changed = "", now
	}
	for _, s := range d.lookAtFiles(names, now) {
		if s.changed || s.again > 0 {
			d.changed = now
		}
		changed = changed || s.changed
		again = sooner(again, s.again)
	}
	if !d.loaded {
		d.loaded = true
		d.saved.keep(names)
	}
	c, wait := d.drop(names, now)
	return changed || c, sooner(again, wait)
}

// seen is the result of a look at a file.
type seen struct {
	changed bool
	again   time.Duration
}

// lookAtFiles looks at the files on all CPUs: they are independent of each other, and at the
// start there can be thousands.
func (d *folder) lookAtFiles(names map[string]bool, now time.Time) []seen {
	all := make([]seen, len(names))
	next := 0
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for name := range names {
		f := d.files[name]
		if f == nil {
			f = &file{cluster: d.cluster}
			d.files[name] = f
			d.changed = now
		}
		f.missing = time.Time{}
		var before func()
		if !d.loaded {
			before = func() { d.saved.restore(name, f) }
		}
		s := &all[next]
		next++
		group.Go(func() error {
			s.changed, s.again = f.look(filepath.Join(d.dir, name), name, now, before)
			return nil
		})
	}
	_ = group.Wait() // there are no errors
	return all
}

// list returns the names of the manifests in the directory, and records entries that may be
// mistaken for one. A name that cannot be resolved counts.
func (d *folder) list() (map[string]bool, error) {
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	d.strange = nil
	for _, e := range entries {
		path := filepath.Join(d.dir, e.Name())
		isDir, takenOut := e.IsDir(), false
		if e.Type()&fs.ModeSymlink != 0 {
			info, err := os.Stat(path)
			isDir = err == nil && info.IsDir()
			// A key that is removed from a ConfigMap briefly leaves a dangling link.
			to, _ := os.Readlink(path)
			takenOut = errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(to, "..data/")
		}
		switch {
		case strings.HasPrefix(e.Name(), "."), takenOut:
		case isDir && holdsManifests(path):
			d.strange = append(d.strange, problem.Problem{Where: e.Name(), Message: "is a folder, whose files are not read; put them into " + d.dir})
		case !isDir && IsManifest(e.Name()):
			names[e.Name()] = true
		}
	}
	return names, nil
}

// IsManifest reports whether a file of this name in the directory is read.
func IsManifest(name string) bool {
	ext := strings.ToLower(filepath.Ext(name))
	return !strings.HasPrefix(name, ".") && (ext == ".yaml" || ext == ".yml" || ext == ".json")
}

// holdsManifests reports whether a directory contains files with names of manifests.
func holdsManifests(dir string) bool {
	if IsManifest(filepath.Base(dir)) {
		return true
	}
	entries, _ := os.ReadDir(dir)
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return !e.IsDir() && IsManifest(e.Name()) })
}

// drop removes files that are missing permanently.
func (d *folder) drop(names map[string]bool, now time.Time) (changed bool, again time.Duration) {
	for name, f := range d.files {
		if names[name] {
			continue
		}
		if f.missing.IsZero() {
			f.missing, d.changed = now, now
		}
	}
	for name, f := range d.files {
		if names[name] {
			continue
		}
		// Remove files even if the directory never stops changing.
		quiet := now.Sub(d.changed) >= goneAfter || now.Sub(f.missing) >= 10*goneAfter
		if !quiet && len(f.objects) > 0 {
			again = sooner(again, goneAfter-now.Sub(d.changed))
			continue
		}
		delete(d.files, name)
		d.saved.remove(name)
		changed = true
	}
	return changed, again
}

// sooner returns the shorter of two waits; 0 means none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// look reads a file if it may have changed. Its text is accepted immediately if the file
// replaced the previous one and loses nothing; otherwise only once it has been stable for a
// while, because it may be partially written. restore, at an agent's first check, restores
// the file's previous objects if they are needed.
func (f *file) look(path, name string, now time.Time, restore func()) (changed bool, again time.Duration) {
	text, info, err := f.read(path, now)
	if errors.Is(err, fs.ErrNotExist) {
		return false, settle // deleted meanwhile; the next check handles it
	}
	if err != nil {
		if restore != nil {
			restore()
		}
		return f.setUnread(err.Error(), now), 0
	}
	changed = f.setUnread("", now)
	if info == nil {
		return changed, 0
	}
	f.seen, f.seenAt = info, now
	sum := sha256.Sum256(text)
	if f.taken != nil && sum == f.sum {
		f.taken, f.waiting, f.waitingText = info, nil, nil
		return changed, 0
	}
	if f.waiting == nil || sum != f.waitingSum {
		f.waiting, f.waitingText, f.waitingSum, f.since = parse(name, text, f.cluster), text, sum, now
	}
	whole := f.taken == nil || !os.SameFile(f.taken, info)
	if restore == nil && !(whole && f.harmless(f.waiting)) && now.Sub(f.since) < settle {
		return changed, settle - now.Sub(f.since)
	}
	if restore != nil && f.waiting.incomplete() {
		restore()
	}
	f.take(f.waiting, now)
	f.text, f.sum, f.taken = f.waitingText, sum, info
	f.waiting, f.waitingText = nil, nil
	return true, 0
}

// setUnread records why the file cannot be read, or that it can, and reports whether that
// changed.
func (f *file) setUnread(why string, now time.Time) bool {
	if f.unread == why {
		return false
	}
	if f.unread == "" {
		f.unreadSince = now
	}
	f.unread = why
	return true
}

// read returns the text of a file, without info if it is certainly unchanged.
func (f *file) read(path string, now time.Time) ([]byte, os.FileInfo, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if to, linkErr := os.Readlink(path); linkErr == nil {
			err = fmt.Errorf("it is a symbolic link to %s, which leads to no file", to)
		}
	}
	switch {
	case err != nil:
		return nil, nil, err
	case !info.Mode().IsRegular():
		return nil, nil, fmt.Errorf("is not a file but %s", info.Mode().Type())
	case info.Size() > maxText:
		return nil, nil, fmt.Errorf("has %d bytes; no more than %d are read", info.Size(), maxText)
	}
	same := f.seen != nil && f.unread == "" && f.waiting == nil && os.SameFile(f.seen, info) &&
		f.seen.Size() == info.Size() && f.seen.ModTime().Equal(info.ModTime())
	if same && f.seenAt.Sub(info.ModTime()) > racy {
		return nil, nil, nil
	}
	text, err := os.ReadFile(path)
	return text, info, err
}

// harmless reports whether accepting p would reject nothing and lose nothing.
func (f *file) harmless(p *parsed) bool {
	return !p.broken && len(p.problems) == 0 && len(f.absent(p)) == 0
}

// absent returns the objects in force that p does not have.
func (f *file) absent(p *parsed) (out []*object.Object) {
	has := byKey(p.objects)
	for _, o := range f.objects {
		if has[o.Key] == nil {
			out = append(out, o)
		}
	}
	return out
}

// take puts text p in force: its objects replace the previous ones, except that rejected
// objects, and those that may be missing because the text is truncated, keep their previous
// version. It is pure.
func (f *file) take(p *parsed, now time.Time) {
	f.problems, f.refused, f.unsaved = slices.Clone(p.problems), p.refused, true
	stale := map[object.Key]time.Time{}
	keep := func(o *object.Object) *object.Object {
		stale[o.Key] = cmp.Or(f.stale[o.Key], now)
		return o
	}
	defer func() { f.stale = stale }()
	if !p.incomplete() {
		f.lost = ""
	}
	if p.broken {
		for _, o := range f.objects {
			keep(o)
		}
		return
	}
	former := byKey(f.objects)
	var objects []*object.Object
	for _, o := range p.objects {
		if was := former[o.Key]; was != nil {
			if p := o.TypeChange(was); p != nil {
				f.problems = append(f.problems, *p)
				o = keep(was)
			}
		}
		objects = append(objects, o)
	}
	for _, o := range f.absent(p) {
		if p.cut || slices.ContainsFunc(p.refused, func(k object.Key) bool { return couldBe(k, o.Key) }) {
			objects = append(objects, keep(o))
		}
	}
	f.objects = objects
}

// snapshot combines all files.
func (d *folder) snapshot() source.Snapshot {
	var objects []*object.Object
	var problems []problem.Problem
	if d.gone != "" {
		problems = append(problems, problem.Problem{
			Where: d.dir, Message: "the folder " + d.gone + "; its last state is served on",
		})
	}
	problems = append(problems, d.strange...)
	here := d.present()
	var refused []object.Key
	for _, name := range sortedKeys(d.files) {
		f := d.files[name]
		for _, o := range f.objects {
			// A renamed file is missing under its old name: its content counts under the
			// new one.
			if f.missing.IsZero() || !here[o.Key] {
				objects = append(objects, o)
			}
		}
		problems = append(problems, f.allProblems(name)...)
		refused = append(refused, f.refused...)
	}
	objects, doubles := d.unique(objects)
	advertisements, wrong := d.routing.look(objects)
	known := byKey(objects)
	services, more := d.joiner.join(objects, known, refused)
	slices.SortFunc(services, func(a, b *service.Service) int { return a.ID.Compare(b.ID) })
	problems = append(problems, more...)
	pods := podsAmong(known)
	members := object.Members(objects, d.balancers, pods)
	balancers, draining := object.Balancers(members)
	senders, more := object.Senders(object.Selected(objects, d.acceptFrom), d.acceptFrom, pods)
	return source.Snapshot{
		Services: services, Advertisements: advertisements, Quarantines: quarantinesIn(objects), Balancers: balancers, Draining: draining, Senders: senders, Names: object.Names(members),
		Problems: slices.Concat(problems, wrong, doubles, more), Stale: d.staleOf(objects),
	}
}

// allProblems returns the current problems of a file.
func (f *file) allProblems(name string) (all []problem.Problem) {
	if f.unread != "" {
		all = append(all, problem.Problem{Where: name, Message: "cannot be read: " + f.unread})
	}
	if f.lost != "" {
		all = append(all, problem.Problem{Where: name, Message: f.lost})
	}
	return append(all, f.problems...)
}

// staleOf returns the objects in use that differ from the current content of their files.
func (d *folder) staleOf(objects []*object.Object) (all []source.Stale) {
	for _, o := range objects {
		f := d.files[o.File]
		since, stale := f.stale[o.Key]
		if !stale && f.unread != "" {
			since, stale = f.unreadSince, true
		}
		if stale {
			all = append(all, source.Stale{Object: o.Key.String(), Where: o.Where(), Service: o.Belongs(), Since: since.UTC().Round(0)})
		}
	}
	return all
}

// present reports the objects in use from files that are not missing.
func (d *folder) present() map[object.Key]bool {
	here := map[object.Key]bool{}
	for _, f := range d.files {
		for _, o := range f.objects {
			here[o.Key] = here[o.Key] || f.missing.IsZero() && !f.unused[o.Key]
		}
	}
	return here
}
