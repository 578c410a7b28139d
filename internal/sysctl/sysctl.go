// Package sysctl sets what a part needs of the kernel's settings of a network
// namespace, and says why where it cannot. Nothing else in Fairlead's agents and
// routers writes them.
package sysctl

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// RootEnv is the environment variable that names the folder of the settings where
// it is not /proc/sys/net: in a container that one is read-only, and the node's
// is mounted elsewhere. Wherever it is, it shows those of the calling thread's
// network namespace.
const RootEnv = "FAIRLEAD_PROC_SYS_NET"

var root = cmp.Or(os.Getenv(RootEnv), "/proc/sys/net")

// Setting is one of a network namespace.
type Setting struct {
	Path  string // below net, with slashes
	Value string
	Why   string
}

// Read gives a setting of the calling thread's namespace, by its path; "" where
// there is none.
func Read(path string) string {
	text, _ := os.ReadFile(filepath.Join(root, path))
	return strings.TrimSpace(string(text))
}

// Writable reports whether this process may change a setting, by its path. It may
// not where the file system is mounted read-only, as in most containers.
func Writable(path string) bool {
	return unix.Access(filepath.Join(root, path), unix.W_OK) == nil
}

// SetAll sets what is not yet right in the calling thread's namespace.
func SetAll(settings []Setting) error {
	for _, s := range settings {
		if err := s.Set(); err != nil {
			return err
		}
	}
	return nil
}

// Change is SetAll, and gives what puts the old values back, the last first.
// Where one fails, those before it are put back.
func Change(settings []Setting) (restore func() error, err error) {
	var done []Setting
	restore = func() error {
		var errs []error
		for ; len(done) > 0; done = done[:len(done)-1] {
			errs = append(errs, done[len(done)-1].Set())
		}
		return errors.Join(errs...)
	}
	for _, s := range settings {
		before := Read(s.Path)
		if err := s.Set(); err != nil {
			return func() error { return nil }, errors.Join(err, restore())
		}
		if before != "" && before != s.Value {
			done = append(done, Setting{Path: s.Path, Value: before, Why: "it was so before"})
		}
	}
	return restore, nil
}

// Set sets it in the calling thread's namespace where it is not yet right. IPv6
// may be absent.
func (s Setting) Set() error { return s.set(root) }

func (s Setting) set(root string) error {
	path := filepath.Join(root, s.Path)
	name := "net." + strings.ReplaceAll(s.Path, "/", ".")
	have, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(s.Path, "ipv6/") {
		return nil
	}
	if err != nil {
		return fmt.Errorf("sysctl %s: %w: is the interface's name right?", name, err)
	}
	if strings.TrimSpace(string(have)) == s.Value {
		return nil
	}
	// Not made where absent, and not truncated: /proc knows neither.
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(s.Value)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("sysctl %s is %s: %w: set it to %s from outside, because %s",
			name, strings.TrimSpace(string(have)), err, s.Value, s.Why)
	}
	return nil
}
