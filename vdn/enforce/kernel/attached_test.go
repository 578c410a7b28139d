package kernel

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// hooks are the tcx attach points of a device.
var hooks = []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress}

// programsAt returns the names of the programs at a device of the calling thread's
// namespace, attached with tcx or clsact.
func programsAt(t *testing.T, dev netlink.Link, where string) (all []string) {
	t.Helper()
	for _, hook := range hooks {
		found, err := link.QueryPrograms(link.QueryOptions{Target: dev.Attrs().Index, Attach: hook})
		if err != nil {
			continue // no tcx in this kernel
		}
		for _, p := range found.Programs {
			all = append(all, fmt.Sprintf("%s %s %v", where, dev.Attrs().Name, hook)+nameOf(t, p.ID))
		}
	}
	for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		filters, _ := netlink.FilterList(dev, parent) // no clsact, no filters
		for _, f := range filters {
			if bpf, ok := f.(*netlink.BpfFilter); ok {
				all = append(all, fmt.Sprintf("%s %s %s", where, dev.Attrs().Name, bpf.Name))
			}
		}
	}
	return all
}

func nameOf(t *testing.T, id ebpf.ProgramID) string {
	t.Helper()
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		t.Fatal(err)
	}
	return " " + info.Name
}

// detachAll detaches all programs from a device.
func detachAll(t *testing.T, dev netlink.Link) {
	t.Helper()
	for _, hook := range hooks {
		found, err := link.QueryPrograms(link.QueryOptions{Target: dev.Attrs().Index, Attach: hook})
		if err != nil {
			continue
		}
		for _, p := range found.Programs {
			id, ok := p.LinkID()
			if !ok {
				continue
			}
			l, err := link.NewFromID(id)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Detach(); err != nil {
				t.Error(err)
			}
			l.Close()
		}
	}
	_ = netlink.QdiscDel(&netlink.GenericQdisc{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: dev.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}, QdiscType: "clsact"}) // if it exists
}
