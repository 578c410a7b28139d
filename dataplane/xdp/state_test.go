package xdp

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/attach"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/program"
	"github.com/fairlead/fairlead/internal/bpffs"
	"github.com/fairlead/fairlead/internal/bpfload"
	"github.com/fairlead/fairlead/internal/bpfload/layouttest"
	"github.com/fairlead/fairlead/lab/testkit"
)

// another is a release whose maps have other layouts: it takes over like Open, and its
// program forwards.
type another struct {
	*DataPlane
	*ebpf.Collection
	state *bpfload.State
}

// nextLayouts are the maps whose entries have an additional field there.
var nextLayouts = []string{
	bpf.BalancerMapFrontends, bpf.BalancerMapPortRanges, bpf.BalancerMapServers, bpf.BalancerMapMembers, bpf.BalancerMapGuardLimits, bpf.BalancerMapChains,
	bpf.BalancerMapFlows, bpf.BalancerMapFlowData, bpf.BalancerMapFlowBack,
}

// openAnother does not replace the program unless replaces is set.
func (n *testNet) openAnother(t *testing.T, c Config, before *DataPlane, replaces bool) *another {
	t.Helper()
	a := &another{DataPlane: &DataPlane{}}
	testkit.Do(t, n.balancer, func() error {
		c := c.withDefaults()
		spec, err := c.program().Spec()
		must(t, err)
		next := layouttest.Next(t, spec, kept, nextLayouts...)
		must(t, before.program.SetConstants(spec))
		delete(spec.Programs, program.Steps[bpf.BalancerStepSTEP_HANDOVER])
		delete(spec.Programs, program.Steps[bpf.BalancerStepSTEP_SYN])
		program.FillSteps(spec)
		pins, err := bpffs.Open(filepath.Join(c.PinDir, ownFolder))
		must(t, err)
		defer pins.Close()
		attached, err := bpfload.Attached(pins, attach.Prefix)
		must(t, err)
		a.state, err = bpfload.OpenState(spec, bpfload.Source{Folder: pins.Path(""), Maps: next, History: history, Attached: attached})
		must(t, err)
		a.Collection, err = ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: pins.Path("")}})
		must(t, err)
		t.Cleanup(a.Collection.Close)
		a.DataPlane.kernel = &program.Objects{Balancer: a.Collection.Programs["balancer"]}
		_, err = a.state.Carry()
		must(t, errors.Join(err, a.state.Replace(a.Collection.Programs["balancer"])))
		if !replaces {
			return nil
		}
		must(t, a.Maps["steps"].Pin(pins.Path(program.StepsPrefix+"another")))
		l, err := link.LoadPinnedLink(pins.Path(attach.Pin("eth0")), nil)
		must(t, err)
		return errors.Join(l.Update(a.Collection.Programs["balancer"]), l.Close(), a.state.Settle())
	})
	return a
}

// A release with other map layouts takes over, and this one comes back: frontends, ring
// history, tracked flows and source ranges stay unchanged, and packets flow all the time.
func TestForwardAndBack(t *testing.T) {
	n := newNet(t)
	c := config()
	d := n.open(t, c)
	plain := frontend(service.Tunnel, vips[false], service.TCP, servers[false], "172.16.5.9:80")
	upsert(t, d, plain)
	plain.Backends[1].Weight = 0
	upsert(t, d, plain) // so that slots have previous owners
	remembers := frontend(service.Tunnel, "10.1.1.7:53", service.UDP, servers[false], "172.16.5.9:80")
	remembers.Scheduler = service.RoundRobin
	upsert(t, d, remembers)
	ranged := frontend(service.Tunnel, "10.1.1.8:8000", service.TCP, "172.16.5.8:0")
	ranged.Last = 8999
	upsert(t, d, ranged)
	guarded := frontend(service.Tunnel, vips[true], service.TCP, servers[true])
	guarded.Limits.Packets = 5
	upsert(t, d, guarded)
	ask := func(d *DataPlane, client string) string {
		_, out := n.run(t, d, packet{src: client, dst: "10.1.1.7:53", udp: true}.bytes(t))
		const outerDestination = 14 + 16
		return fmt.Sprint(out[outerDestination : outerDestination+4])
	}
	first := ask(d, "192.0.2.1:1001")
	programmed, rings := listed(t, d), ringsByAddress(t, d)
	traffic := n.steadyTraffic(t)
	traffic.more("before")
	for range 2 {
		must(t, d.Close())
		a := n.openAnother(t, c, d, true)
		traffic.more("by another release")
		if now := ask(a.DataPlane, "192.0.2.1:1001"); now != first {
			t.Errorf("another release sends a known flow to %s, this one did to %s", now, first)
		}
		second := ask(a.DataPlane, "192.0.2.2:1002")
		if names := n.pinned(t, c); !slices.Contains(names, "flows-1000") || slices.Contains(names, "flows") {
			t.Errorf("another release leaves pinned %v", names)
		}
		d = n.open(t, c)
		traffic.more("by this release again")
		if now := listed(t, d); now != programmed {
			t.Errorf("lists\n %s\nprogrammed\n %s", now, programmed)
		}
		if now := ringsByAddress(t, d); now != rings {
			t.Errorf("rings are\n %s\nwere\n %s", now, rings)
		}
		if a, b := ask(d, "192.0.2.1:1001"), ask(d, "192.0.2.2:1002"); a != first || b != second {
			t.Errorf("known flows go to %s and %s, went to %s and %s", a, b, first, second)
		}
		if names := n.pinned(t, c); slices.ContainsFunc(names, func(name string) bool { return strings.Contains(name, "-1000") }) {
			t.Errorf("this release leaves pinned %v", names)
		}
	}
	traffic.end()
}

// A release that crashes repeatedly before it has replaced the program does no harm,
// whichever starts next.
func TestAnotherReleaseInACrashLoop(t *testing.T) {
	n := newNet(t)
	c := config()
	d := n.open(t, c)
	f := frontend(service.Tunnel, vips[false], service.TCP, servers[false])
	f.Survival = service.FlowTable
	upsert(t, d, f)
	must(t, d.Close())
	for range 3 {
		n.openAnother(t, c, d, false)
	}
	away := &DataPlane{kernel: &program.Objects{}}
	var err error
	away.kernel.Balancer, err = ebpf.NewProgramFromID(ebpf.ProgramID(n.attachedProgram(t, "eth0")))
	must(t, err)
	defer away.kernel.Balancer.Close()
	if v, _ := n.run(t, away, packet{src: clients[false], dst: vips[false], flags: "S"}.bytes(t)); v != redirect {
		t.Fatalf("opens: %v", v)
	}
	n.openAnother(t, c, d, false)
	d = n.open(t, c)
	if flows, err := d.Remembered(); flows != 1 || err != nil {
		t.Errorf("%d flows are remembered, want 1; %v", flows, err)
	}
	if got, want := listed(t, d), show(f); got != want {
		t.Errorf("lists\n %s\nwant\n %s", got, want)
	}
}

// pinned lists the pins.
func (n *testNet) pinned(t *testing.T, c Config) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(c.PinDir, ownFolder, "*"))
	must(t, err)
	for i, name := range names {
		names[i] = filepath.Base(name)
	}
	return names
}
