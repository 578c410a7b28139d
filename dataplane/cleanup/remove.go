// Package cleanup removes everything that agents left in a node's kernel, including those
// that no longer run: programs at interfaces and cgroups, maps, filters, IPVS services.
// Unlike each data plane's own Detach, it depends neither on those agents' configuration
// nor on their version.
package cleanup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/dataplane/ipvs"
	"github.com/fairlead/fairlead/dataplane/xdp/device"
	"github.com/fairlead/fairlead/internal/bpffs"
	"github.com/fairlead/fairlead/internal/tc"
)

// ErrInUse is the error of Node, wrapped, while an agent runs.
var ErrInUse = bpffs.ErrInUse

// Node removes everything pinned below a directory on a BPF file system, and what agents
// left in the calling thread's network namespace. If nothing is there, it succeeds. It
// continues after errors.
func Node(folder string) error {
	dirs, err := hold(folder)
	if err != nil {
		return errors.Join(err, letGo(dirs))
	}
	var errs []error
	for _, d := range dirs {
		errs = append(errs, device.RestoreAll(d), endLinks(d))
	}
	errs = append(errs, tc.RemoveFilters(), removeIPVS(), os.RemoveAll(folder), letGo(dirs))
	return errors.Join(errs...)
}

// hold locks all pin directories, so that no agent can use them.
func hold(folder string) (dirs []*bpffs.Dir, err error) {
	err = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		d, err := bpffs.Open(path)
		if err == nil {
			dirs = append(dirs, d)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return dirs, err
}

func letGo(dirs []*bpffs.Dir) error {
	var errs []error
	for _, d := range dirs {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

// endLinks detaches the programs whose links are pinned in a directory. Socket programs
// that choose an endpoint are detached before those that handle replies.
func endLinks(d *bpffs.Dir) error {
	names, err := d.Names("")
	errs := []error{err}
	for _, answers := range []bool{false, true} {
		for _, name := range names {
			isAnswers := strings.Contains(name, "recvmsg") || strings.Contains(name, "getpeername")
			if strings.Contains(name, "link_") && isAnswers == answers {
				errs = append(errs, tc.EndLink(d.Path(name)))
			}
		}
	}
	return errors.Join(errs...)
}

func removeIPVS() error {
	there, err := ipvs.Present()
	if err != nil || !there {
		return err
	}
	d, err := ipvs.Open(ipvs.Config{})
	if err != nil {
		return err
	}
	return d.Detach()
}
