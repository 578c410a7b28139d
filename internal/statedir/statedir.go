// Package statedir keeps what must outlive a process in files of a private folder.
// Each file has a version and a checksum, is replaced as one step, and is written in
// the background. What the files mean is their owners' business. A folder that cannot
// be used is reported (Problems) and otherwise costs nothing but the memory.
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
)

const (
	suffix   = ".json"
	lockFile = ".lock"
	// maxFile is the size of the largest file, in bytes.
	maxFile = limit.Text
	// retry is how long after a failed write the next one is tried, pause how long
	// values are gathered before they are written.
	retry = 10 * time.Second
	pause = 100 * time.Millisecond
)

// Dir is such a folder. A nil Dir remembers nothing.
type Dir struct {
	path string
	log  *slog.Logger
	lock *os.File // nil where the folder cannot be used
	wake chan struct{}
	done chan struct{}

	mu      sync.Mutex
	closed  chan struct{}
	pending map[string]*pending // by path
	wrong   map[string]error    // by path; "" for the folder itself
}

// pending is what a file is to become.
type pending struct {
	// text gives the content; nil: the file is to be removed.
	text func() ([]byte, error)
}

// Open takes a folder for this process alone, and makes it where it is missing. Where
// it cannot be used it gives a Dir that remembers nothing and says why.
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

// take makes the folder and locks it.
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

// Path is where the folder is; empty for a nil Dir.
func (d *Dir) Path() string {
	if d == nil {
		return ""
	}
	return d.path
}

// Problems gives what keeps values from being kept, in a steady order.
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

// Close writes what is left to write and lets go of the folder.
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

// note sets what is wrong with a file, or nil; it is logged when it comes up.
func (d *Dir) note(path string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.wrong[path]
	if delete(d.wrong, path); err == nil {
		return
	}
	if d.wrong[path] = err; was == nil || was.Error() != err.Error() {
		d.log.Warn("state is not persisted", "folder", d.path, "error", err)
	}
}

func (d *Dir) put(path string, p *pending) {
	d.mu.Lock()
	d.pending[path] = p
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// run brings the files up to date until the Dir is closed.
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
		select {
		case <-d.closed:
		case <-time.After(pause):
		}
		failed = d.flush()
	}
}

// flush writes what is pending, each file once. What fails stays pending.
func (d *Dir) flush() (failed bool) {
	d.mu.Lock()
	todo := maps.Clone(d.pending)
	d.mu.Unlock()
	for _, path := range slices.Sorted(maps.Keys(todo)) {
		p := todo[path]
		err := p.write(path)
		d.note(path, err)
		if err != nil {
			failed = true
			continue
		}
		d.mu.Lock()
		if d.pending[path] == p {
			delete(d.pending, path)
		}
		d.mu.Unlock()
	}
	return failed
}

// write makes a file have its content. One that cannot be had is not left as it was,
// which is out of date.
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

// peek gives what a file holds, or will.
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
