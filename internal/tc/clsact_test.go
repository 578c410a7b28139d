package tc_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/internal/tc"
	"github.com/fairlead/fairlead/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func program(t *testing.T, ingress bool, handle uint32) tc.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return tc.Program{Program: p, Ingress: ingress, Handle: handle}
}

// filters lists the filter names of a device: "fairlead_in".
func filters(t *testing.T, device netlink.Link) (names []string) {
	t.Helper()
	for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		all, err := netlink.FilterList(device, parent)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range all {
			names = append(names, strings.TrimPrefix(f.(*netlink.BpfFilter).Name, "fairlead_"))
		}
	}
	slices.Sort(names)
	return names
}

// TestFiltersOfAnotherRelease upgrades to a release with one more program and then
// downgrades, with clsact filters: filters unknown to the older release are removed, and
// those of another caller stay.
func TestFiltersOfAnotherRelease(t *testing.T) {
	ns := testkit.NetNS(t)
	testkit.Do(t, ns, func() error {
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "nic0"}, PeerName: "nic1"}); err != nil {
			return err
		}
		nic, err := netlink.LinkByName("nic0")
		if err != nil {
			return err
		}
		hold := func(progs tc.Programs) {
			t.Helper()
			hook, err := tc.OpenClsact(nil, progs)
			if err != nil {
				t.Fatal(err)
			}
			points := map[tc.Point]bool{}
			for name := range progs {
				points[tc.Point{Device: nic.Attrs().Index, Program: name}] = true
			}
			if err := hook.Keep(points); err != nil {
				t.Fatal(err)
			}
			if err := hook.Close(); err != nil {
				t.Fatal(err)
			}
		}
		older := tc.Programs{"in": program(t, true, 1)}
		newer := tc.Programs{"in": program(t, true, 1), "more": program(t, true, 2), "out": program(t, false, 3)}
		hold(tc.Programs{"other": program(t, true, 11)})
		hold(older)
		for range 2 {
			hold(newer)
			if got := filters(t, nic); !slices.Equal(got, []string{"in", "more", "other", "out"}) {
				t.Errorf("the newer release has filters %v", got)
			}
			hold(older)
			if got := filters(t, nic); !slices.Equal(got, []string{"in", "other"}) {
				t.Errorf("the older release has filters %v, want its own and another caller's", got)
			}
		}
		return nil
	})
}
