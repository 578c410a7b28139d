// Package cleanup takes out of a node's kernel all that agents left there, who go
// away without a trace in traffic: programs at interfaces and cgroups, maps,
// filters, services of IPVS. It asks neither how those agents were configured nor
// of which version they were, as each data plane's own Detach does.
package cleanup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/dataplane/ipvs"
	"github.com/fairlead/fairlead/dataplane/xdp"
	"github.com/fairlead/fairlead/internal/bpffs"
	"github.com/fairlead/fairlead/internal/tc"
)

// ErrInUse is what Node answers, wrapped, while an agent runs.
var ErrInUse = bpffs.ErrInUse

// Node takes away all that is pinned below a folder on a BPF file system, and
// what agents left in the calling thread's network namespace. Where nothing is
// there, nothing is wrong. What cannot be taken away does not save the rest.
func Node(folder string) error {
	dirs, err := hold(folder)
	if err != nil {
		return errors.Join(err, letGo(dirs))
	}
	var errs []error
	for _, d := range dirs {
		errs = append(errs, xdp.RestoreOffloads(d), endLinks(d))
	}
	errs = append(errs, tc.RemoveFilters(), removeIPVS(), os.RemoveAll(folder), letGo(dirs))
	return errors.Join(errs...)
}

// hold takes hold of all folders of pins, so that no agent has them.
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

// endLinks detaches the programs whose links are pinned in a folder. Those of
// sockets that choose a target go before those that answers pass.
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
