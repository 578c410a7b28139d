package cleanup_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/dataplane/cleanup"
	"github.com/fairlead/fairlead/dataplane/dsr"
	"github.com/fairlead/fairlead/dataplane/proxy"
	"github.com/fairlead/fairlead/dataplane/proxy/packet"
	"github.com/fairlead/fairlead/dataplane/xdp"
	"github.com/fairlead/fairlead/internal/bpffs"
	"github.com/fairlead/fairlead/internal/tc"
	"github.com/fairlead/fairlead/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const folder = "/sys/fs/bpf/fairlead"

// TestNode opens everything that an agent uses, closes it as a terminating agent does,
// and verifies that cleanup leaves nothing behind except filters of other owners.
func TestNode(t *testing.T) {
	testkit.Do(t, testkit.NetNS(t), func() error {
		eth0 := plug(t)
		foreign := filters(t, eth0)
		closeAll := agent(t)
		if err := cleanup.Node(folder); !errors.Is(err, cleanup.ErrInUse) {
			t.Errorf("while an agent runs: %v", err)
		}
		closeAll()
		if at := attached(t, eth0); len(at) < 3 {
			t.Fatalf("attached is %v only: nothing to remove", at)
		}
		for range 2 { // an absent object is no error
			if err := cleanup.Node(folder); err != nil {
				return err
			}
		}
		if at := attached(t, eth0); !slices.Equal(at, foreign) {
			t.Errorf("attached is %v, want %v", at, foreign)
		}
		if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("pins: %v", err)
		}
		return nil
	})
}

// plug adds an interface with an address and a route out to the namespace.
func plug(t *testing.T) netlink.Link {
	t.Helper()
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "far0"}
	must(t, netlink.LinkAdd(veth))
	for _, name := range []string{"lo", "far0", "eth0"} {
		l, err := netlink.LinkByName(name)
		must(t, errors.Join(err, netlink.LinkSetUp(l)))
	}
	eth0, err := netlink.LinkByName("eth0")
	must(t, err)
	addr, err := netlink.ParseAddr("10.0.0.1/24")
	must(t, errors.Join(err, netlink.AddrAdd(eth0, addr)))
	must(t, netlink.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: []byte{10, 0, 0, 254}}))
	return eth0
}

// agent opens the data planes like an agent with all roles.
func agent(t *testing.T) (closeAll func()) {
	t.Helper()
	balancer, err := xdp.Open(xdp.Config{Interfaces: []string{"eth0"}, Mode: xdp.Generic, PinDir: filepath.Join(folder, "balancer"),
		MaxFrontends: 16, MaxBackends: 16, MaxFlows: 1024})
	must(t, err)
	half, err := dsr.Open(dsr.Config{PinDir: filepath.Join(folder, "server"), MaxFlows: 1024})
	must(t, err)
	sockets, err := proxy.Open(proxy.Config{PinDir: filepath.Join(folder, "proxy"), MaxFrontends: 16, MaxTargets: 16, MaxSourceRanges: 16})
	must(t, err)
	packets, err := packet.Open(packet.Config{
		Maps: proxy.Folder(filepath.Join(folder, "proxy")), PinDir: filepath.Join(folder, "packets"), MaxFlows: 1024})
	must(t, err)
	return func() {
		t.Helper()
		must(t, errors.Join(packets.Close(), sockets.Close(), half.Close(), balancer.Close()))
	}
}

// filters adds clsact filters to a device, as kernels without tcx need them: one of
// Fairlead and one of another owner. It returns the latter in the format of attached.
func filters(t *testing.T, eth0 netlink.Link) []string {
	t.Helper()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	must(t, err)
	t.Cleanup(func() { program.Close() })
	dir, err := bpffs.Open("/sys/fs/bpf/test")
	must(t, err)
	hook, err := tc.OpenClsact(dir, tc.Programs{"one": {Program: program, Ingress: true, Handle: 1}})
	must(t, err)
	must(t, netlink.QdiscAdd(&netlink.GenericQdisc{QdiscType: "clsact", QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: eth0.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}))
	must(t, netlink.FilterAdd(&netlink.BpfFilter{Fd: program.FD(), Name: "foreign", DirectAction: true, FilterAttrs: netlink.FilterAttrs{
		LinkIndex: eth0.Attrs().Index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Protocol: 3, Priority: 1}}))
	foreign := attached(t, eth0)
	must(t, hook.Keep(map[tc.Point]bool{{Device: eth0.Attrs().Index, Program: "one"}: true}))
	must(t, errors.Join(hook.Close(), dir.RemoveAll()))
	return foreign
}

// attached lists what is at a device: XDP, tcx and filters.
func attached(t *testing.T, l netlink.Link) (all []string) {
	t.Helper()
	l, err := netlink.LinkByName(l.Attrs().Name)
	must(t, err)
	if x := l.Attrs().Xdp; x != nil && x.Attached {
		all = append(all, "xdp")
	}
	for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
		found, err := link.QueryPrograms(link.QueryOptions{Target: l.Attrs().Index, Attach: at})
		if err == nil && len(found.Programs) > 0 {
			all = append(all, at.String())
		}
	}
	found, err := netlink.FilterList(l, netlink.HANDLE_MIN_INGRESS)
	must(t, err)
	for _, f := range found {
		if b, ok := f.(*netlink.BpfFilter); ok {
			all = append(all, "filter "+strings.TrimSpace(b.Name))
		}
	}
	return all
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
