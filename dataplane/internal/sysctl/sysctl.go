// Package sysctl sets what a data plane needs of its network namespace, and says
// why where it cannot.
package sysctl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Net is the folder of a namespace's settings: that of the calling thread's.
const Net = "/proc/sys/net"

// Setting is one of a network namespace.
type Setting struct {
	Path  string // below Net
	Value string
	Why   string
}

// SetAll sets what is not yet right in the calling thread's namespace.
func SetAll(settings []Setting) error {
	for _, s := range settings {
		if err := s.Set(Net); err != nil {
			return err
		}
	}
	return nil
}

// Set sets it below a folder where it is not yet right. IPv6 may be absent.
func (s Setting) Set(root string) error {
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
