// Package unixsocket listens on unix sockets by path: one process at a time, and a file that
// does not outlive its process. What is served there belongs to the caller.
package unixsocket

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrInUse means that another process already listens on the socket.
var ErrInUse = errors.New("another agent is listening there: stop it, or use another --socket")

// socket is a listener that removes its own file when it is closed.
type socket struct {
	*net.UnixListener
	path string
	self os.FileInfo
	once sync.Once
}

// Listen creates the unix socket at path, to which only its owner may connect, and its
// directory if needed. It replaces the socket file of a dead process, but not that of a
// running one (ErrInUse).
func Listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	var s *socket
	err := withFolderLocked(path, func() error {
		if err := removeStale(path); err != nil {
			return err
		}
		var err error
		s, err = bind(path)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func bind(path string) (*socket, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // Close first checks whose file it is
	self, err := os.Lstat(path)
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return &socket{UnixListener: l, path: path, self: self}, nil
}

// Close removes the socket file, unless a successor has replaced it, and closes the
// socket. It does so in this order and only once: while the socket is open, its inode
// cannot be reused for another file.
func (s *socket) Close() error {
	err := net.ErrClosed
	s.once.Do(func() { err = s.close() })
	return err
}

func (s *socket) close() error {
	err := withFolderLocked(s.path, func() error {
		now, err := os.Lstat(s.path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(now, s.self) {
			return nil
		}
		return errors.Join(err, os.Remove(s.path))
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // the whole directory is gone
	}
	return errors.Join(err, s.UnixListener.Close())
}

// removeStale removes the socket of a dead agent. It does not remove files that are not
// sockets.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return errors.New("is there already and no socket: move it away, or pass another --socket")
	}
	conn, err := net.DialTimeout("unix", path, 2*time.Second)
	if err == nil {
		conn.Close()
		return ErrInUse
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
}

// withFolderLocked runs f while holding the lock on path's directory, so that checking
// and removing a socket file is atomic. The kernel releases the lock when its holder
// dies.
func withFolderLocked(path string, f func() error) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("locking the folder: %w", err)
	}
	return f()
}
