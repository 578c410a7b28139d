// Package netns creates named network namespaces and runs code in them. Topologies and
// tests do not belong here; lab and lab/testkit build on it.
package netns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// Dir is the folder of named namespaces, as in `ip netns`.
const Dir = "/run/netns"

// NS is a network namespace.
type NS struct {
	name string
	file *os.File
}

// Create creates a namespace and names it in Dir, which must exist. Its lo is up.
func Create(name string) (*NS, error) {
	path := filepath.Join(Dir, name)
	mark, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return nil, fmt.Errorf("namespace %s: %w", name, err)
	}
	mark.Close()
	done := make(chan error)
	go func() {
		// Never unlocked: the thread is in the new namespace and ends with
		// this goroutine.
		runtime.LockOSThread()
		done <- unshareOnto(path)
	}()
	if err := <-done; err != nil {
		os.Remove(path)
		return nil, fmt.Errorf("namespace %s: %w", name, err)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("namespace %s: %w", name, err)
	}
	return &NS{name: name, file: file}, nil
}

func unshareOnto(path string) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := LoopbackUp(); err != nil {
		return err
	}
	if err := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount on %s: %w", path, err)
	}
	return nil
}

// Name is the name with which the namespace was created.
func (n *NS) Name() string { return n.name }

// FD is a file descriptor of the namespace, valid until Close.
func (n *NS) FD() int { return int(n.file.Fd()) }

// Path is where others can open the namespace, as long as it has its name.
func (n *NS) Path() string { return filepath.Join(Dir, n.name) }

// Close removes the name. The namespace itself exists as long as a process or a socket is
// in it.
func (n *NS) Close() error {
	err := n.file.Close()
	return errors.Join(err, unix.Unmount(n.Path(), unix.MNT_DETACH), os.Remove(n.Path()))
}

// Do runs f in the namespace and returns its error. Sockets that f opens and processes
// that it starts permanently belong to the namespace; goroutines that it starts do not
// run there. A runtime.Goexit in f (such as by testing's FailNow) continues in the
// caller.
func (n *NS) Do(f func() error) error {
	var err error
	returned := false
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = n.here(func() error {
			err := f()
			returned = true
			return err
		})
		returned = returned || err != nil
	}()
	<-done
	if !returned {
		runtime.Goexit()
	}
	return err
}

// here runs f on this goroutine's thread. A thread that cannot be returned to its
// namespace stays locked to the goroutine and so ends with it.
func (n *NS) here(f func() error) error {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer home.Close()
	if err := unix.Setns(n.FD(), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter namespace %s: %w", n.name, err)
	}
	defer func() {
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
	}()
	return f()
}

// LoopbackUp brings up lo in the calling thread's namespace; one ioctl
// (netdevice(7)), so that a sandbox needs no netlink.
func LoopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	return nil
}
