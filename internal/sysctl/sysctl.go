// Package sysctl sets the network sysctls that Fairlead needs, and explains failures.
// Nothing else in the agents and routers writes sysctls.
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

// RootEnv is the environment variable that overrides /proc/sys/net as the sysctl directory.
// In a container /proc/sys/net is read-only, and the node's is mounted elsewhere. Any such
// mount shows the network namespace of the calling thread.
const RootEnv = "FAIRLEAD_PROC_SYS_NET"

var root = cmp.Or(os.Getenv(RootEnv), "/proc/sys/net")

// Setting is a sysctl of a network namespace.
type Setting struct {
	Path  string // below net, separated by slashes
	Value string
	Why   string
}

// Read returns a sysctl of the calling thread's namespace, or "" if it does not exist.
func Read(path string) string {
	text, _ := os.ReadFile(filepath.Join(root, path))
	return strings.TrimSpace(string(text))
}

// Writable reports whether this process may change a sysctl. It may not if the file system
// is mounted read-only, as in most containers.
func Writable(path string) bool {
	return unix.Access(filepath.Join(root, path), unix.W_OK) == nil
}

// SetAll applies the settings in the calling thread's namespace.
func SetAll(settings []Setting) error {
	for _, s := range settings {
		if err := s.Set(); err != nil {
			return err
		}
	}
	return nil
}

// Change applies the settings and returns a function that restores the old values in
// reverse order. If a setting fails, the earlier ones are restored.
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

// Set applies the setting in the calling thread's namespace if the value differs. Missing
// IPv6 sysctls are ignored.
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
	// Without O_CREATE and O_TRUNC, which /proc does not support.
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
