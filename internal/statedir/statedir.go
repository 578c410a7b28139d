// Package statedir stores state that must outlive a process in files of a private
// directory. Each file has a version and a checksum, is replaced atomically, and is written
// in the background. The content is up to the callers. If the directory is unusable, this
// is reported (Problems) and has no other effect.
package statedir

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/limit"
	"github.com/fairlead/fairlead/internal/wake"
)

const (
	suffix   = ".json"
	lockFile = ".lock"
	// maxFile is the maximum file size in bytes.
	maxFile = limit.Text
	// retry is the delay before a failed write is retried; pause is how long values are
	// collected before they are written.
	retry = 10 * time.Second
	pause = 100 * time.Millisecond
)

// Dir is a state directory. A nil Dir stores nothing.
type Dir struct {
	path string
	log  *slog.Logger
	lock *os.File // nil if the directory is unusable
	wake chan struct{}
	done chan struct{}

	mu      sync.Mutex
	closed  chan struct{}
	pending map[string]*pending // by path
	wrong   map[string]error    // by path; "" for the directory itself
}

// pending is the next content of a file.
type pending struct {
	// text returns the content; nil means that the file is to be removed.
	text func() ([]byte, error)
}

// Open locks a directory for this process, and creates it if missing. If it is unusable,
// Open returns a Dir that stores nothing and reports why.
func Open(path string, log *slog.Logger) *Dir {
	d := &Dir{
		path: path, log: log, wake: make(chan struct{}, 1), done: make(chan struct{}), closed: make(chan struct{}),
		pending: map[string]*pending{}, wrong: map[string]error{},
	}
	if err := d.take(); err != nil {
		d.note("", err)
		close(d.done)
		return d
	}
	go d.run()
	return d
}

// take creates the directory and locks it.
func (d *Dir) take() error {
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(d.path, lockFile), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return errors.New("another process uses it; give each its own")
		}
		return fmt.Errorf("flock %s: %w", lock.Name(), err)
	}
	d.lock = lock
	return nil
}

// Path returns the path of the directory, or "" for a nil Dir.
func (d *Dir) Path() string {
	if d == nil {
		return ""
	}
	return d.path
}

// File returns the path of a file that the caller itself writes, or "" if the directory is
// unusable.
func (d *Dir) File(name string) string {
	if d == nil || d.lock == nil {
		return ""
	}
	return filepath.Join(d.path, name)
}

// Problems returns the errors that prevent values from being stored, in a stable order.
func (d *Dir) Problems() []error {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []error
	for _, path := range slices.Sorted(maps.Keys(d.wrong)) {
		all = append(all, d.wrong[path])
	}
	return all
}

// Close writes pending values and releases the directory.
func (d *Dir) Close() {
	if d == nil {
		return
	}
	close(d.closed)
	<-d.done
	if d.lock != nil {
		d.lock.Close()
	}
}

// note sets or clears the error of a file. A new error is logged.
func (d *Dir) note(path string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.wrong[path]
	if delete(d.wrong, path); err == nil {
		return
	}
	if d.wrong[path] = err; was == nil || was.Error() != err.Error() {
		d.log.Warn("failed to persist state", "folder", d.path, "error", err)
	}
}

func (d *Dir) put(path string, p *pending) {
	d.mu.Lock()
	d.pending[path] = p
	d.mu.Unlock()
	wake.Up(d.wake)
}

// run writes pending files until the Dir is closed.
func (d *Dir) run() {
	defer close(d.done)
	for failed := false; ; {
		var again <-chan time.Time
		if failed {
			again = time.After(retry)
		}
		select {
		case <-d.closed:
			d.flush()
			return
		case <-d.wake:
		case <-again:
		}
		d.rest(pause)
		failed = d.flush()
	}
}

// flush writes each pending file once. Failed files stay pending. It works at most half of the
// time: thousands of files at the start would compete with what the agent programs.
func (d *Dir) flush() (failed bool) {
	d.mu.Lock()
	todo := maps.Clone(d.pending)
	d.mu.Unlock()
	for _, path := range slices.Sorted(maps.Keys(todo)) {
		began := time.Now()
		failed = !d.flushOne(path, todo[path]) || failed
		d.rest(time.Since(began))
	}
	return failed
}

func (d *Dir) flushOne(path string, p *pending) (ok bool) {
	err := p.write(path)
	d.note(path, err)
	if err != nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pending[path] == p {
		delete(d.pending, path)
	}
	return true
}

// rest waits, unless the Dir is closed.
func (d *Dir) rest(wait time.Duration) {
	select {
	case <-d.closed:
	case <-time.After(wait):
	}
}

// write updates a file. If the content cannot be produced, the outdated file is removed.
func (p *pending) write(path string) error {
	if p.text == nil {
		return replace(path, nil)
	}
	text, err := p.text()
	if err != nil {
		return errors.Join(err, replace(path, nil))
	}
	return replace(path, text)
}

// peek returns the current or pending content of a file.
func (d *Dir) peek(path string) ([]byte, error) {
	d.mu.Lock()
	p := d.pending[path]
	d.mu.Unlock()
	switch {
	case p == nil:
		return limit.ReadFile(path, maxFile)
	case p.text == nil:
		return nil, fs.ErrNotExist
	}
	return p.text()
}
