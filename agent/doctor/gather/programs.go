package gather

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/agent/doctor"
	"github.com/fairlead/fairlead/internal/tc"
)

// pinnedPrograms lists the programs of links that Fairlead pinned, or none if pins are
// not readable.
func pinnedPrograms(bpffs string) map[uint32]bool {
	ours := map[uint32]bool{}
	_ = filepath.WalkDir(filepath.Join(bpffs, pinFolder), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.Contains(entry.Name(), "link_") {
			return nil // what cannot be read is not our pin
		}
		l, err := link.LoadPinnedLink(path, nil) // the kernel cannot open links read-only
		if err != nil {
			return nil
		}
		defer l.Close()
		if info, err := l.Info(); err == nil {
			ours[uint32(info.Program)] = true
		}
		return nil
	})
	return ours
}

// programName returns the name of a program, or doctor.Nameless if querying it is not
// permitted.
func programName(id uint32) string {
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	if err != nil {
		return doctor.Nameless
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return doctor.Nameless
	}
	return info.Name
}

// programsAt lists the tcx and clsact programs of an interface.
func programsAt(l netlink.Link, ours map[uint32]bool) (all []doctor.Program, err error) {
	for _, side := range []struct {
		name   string
		tcx    ebpf.AttachType
		parent uint32
	}{{"ingress", ebpf.AttachTCXIngress, netlink.HANDLE_MIN_INGRESS}, {"egress", ebpf.AttachTCXEgress, netlink.HANDLE_MIN_EGRESS}} {
		found, err := link.QueryPrograms(link.QueryOptions{Target: l.Attrs().Index, Attach: side.tcx})
		switch {
		case err == nil:
			for _, p := range found.Programs {
				id := uint32(p.ID)
				all = append(all, doctor.Program{ID: id, Name: programName(id), Hook: "tcx " + side.name, Ours: ours[id]})
			}
		case !errors.Is(err, ebpf.ErrNotSupported) && !errors.Is(err, unix.EINVAL):
			return all, err // kernels without tcx have no programs there
		}
		list, err := filters(l, side.parent)
		if err != nil {
			return all, err
		}
		for _, f := range list {
			all = append(all, doctor.Program{ID: uint32(f.Id), Name: strings.TrimSpace(f.Name), Hook: "clsact " + side.name, Ours: tc.IsOurs(f)})
		}
	}
	return all, nil
}
