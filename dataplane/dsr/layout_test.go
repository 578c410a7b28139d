package dsr

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/bpffs"
	"github.com/fairlead/fairlead/internal/tc"
	"github.com/fairlead/fairlead/lab/testkit"
)

// openLayout1 leaves in a directory what an agent of the first layout left there: that
// one's object, attached to the pod's device, with one backend and one flow created by
// its program. It returns the link.
func (n *node) openLayout1(t *testing.T, in []byte) link.Link {
	t.Helper()
	dir := pinDir(t, n.ns)
	pins, err := bpffs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer pins.Close()
	spec, err := ebpf.LoadCollectionSpec("testdata/layout1.o")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{dsrMapLocalVips, layout1Flows, dsrMapServerCounters} {
		spec.Maps[name].Pinning = ebpf.PinByName
	}
	old, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: dir}})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	port := func(p uint16) uint16 { return p<<8 | p>>8 }
	key := dsrLocalVipKey{Vip: addrOf(vip.Addr()), Server: addrOf(pod.Addr()), VipPort: port(vip.Port()), Proto: 6}
	row := localVIP1{Deliver: key.Server, Port: port(pod.Port()), Method: 1, Place: 1}
	if err := old.Maps[dsrMapLocalVips].Put(key, row); err != nil {
		t.Fatal(err)
	}
	target := key // like dsr-nat's rows of that layout, now without meaning
	target.Vip, target.VipPort, target.ServerPort = dsrAddr{}, 0, port(9090)
	if err := old.Maps[dsrMapLocalVips].Put(target, localVIP1{Method: 2, Place: 1}); err != nil {
		t.Fatal(err)
	}
	if verdict, _ := n.run(t, old.Programs["to_server"], n.pod, in); verdict != untouched {
		t.Fatalf("the old program gave verdict %d", verdict)
	}
	var l link.Link
	testkit.Do(t, n.ns, func() error {
		l, err = link.AttachTCX(link.TCXOptions{Interface: n.pod, Program: old.Programs["to_server"], Attach: ebpf.AttachTCXEgress})
		return err
	})
	p := point{Device: n.pod, Program: dsrProgToServer}
	if err := l.Pin(filepath.Join(dir, p.Pin())); err != nil {
		t.Fatal(err)
	}
	return l
}

// TestTheFirstLayoutIsCarriedOver opens a DSR agent after one of the first layout: its entries
// and flows are there, and its link has the new program.
func TestTheFirstLayoutIsCarriedOver(t *testing.T) {
	n := newNode(t)
	if n.agent.hook.Kind() != "tcx" {
		t.Skip("no tcx in this kernel")
	}
	if err := n.agent.Detach(); err != nil {
		t.Fatal(err)
	}
	l := n.openLayout1(t, wire{client: client, dst: vip, flags: "S", tunnel: pod.Addr()}.bytes(t))
	defer l.Close()
	before, err := l.Info()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time from its own layout
		n.agent = openAgent(t, n.ns, Config{}, tc.Open)
		wantEntries(t, n.agent, entry(service.Tunnel, vip, pod, service.TCP))
		flows, err := n.agent.Flows()
		if err != nil || len(flows) != 1 || flows[0].Client != client || flows[0].Server != pod || flows[0].VIP != vip {
			t.Fatalf("flows %v, %v; want the one from before", flows, err)
		}
		if flows[0].State != "established" || flows[0].Idle > patience {
			t.Errorf("flow %+v; want it established, and seen just now", flows[0])
		}
		after, err := l.Info()
		if err != nil || after.Program == before.Program {
			t.Errorf("the link has program %d, %v, as before", after.Program, err)
		}
		n.steps(t, []step{
			{name: "the flow continues", in: wire{client: client, dst: vip, tunnel: pod.Addr(), tunnelOption: list{second}},
				out: wire{client: client, dst: pod}, verdict: untouched, counter: "tunnel-delivered"},
			{name: "it is a tunnel's: no shortcut", prog: dsrProgToHost, in: wire{client: client, dst: pod}, same: true, verdict: untouched},
		})
		names, err := n.agent.dir.Names("")
		if err != nil || slices.Contains(names, layout1Flows) || !slices.Contains(names, layout) {
			t.Errorf("pins are %v, %v; want those of the first layout gone", names, err)
		}
		if err := n.agent.Close(); err != nil {
			t.Fatal(err)
		}
	}
	n.agent = openAgent(t, n.ns, Config{}, tc.Open)
}

// TestUnkeyedFlowsAreCarriedOver opens a DSR agent after a release that left its flows in a
// table whose hash has no key.
func TestUnkeyedFlowsAreCarriedOver(t *testing.T) {
	n := newNode(t)
	n.set(t, entry(service.Tunnel, vip, pod, service.TCP))
	n.establish(t, client)
	was, err := n.agent.Flows()
	if err != nil || len(was) != 1 {
		t.Fatalf("flows %v, %v", was, err)
	}
	n.leaveUnkeyed(t)
	n.agent = openAgent(t, n.ns, Config{}, tc.Open)
	flows, err := n.agent.Flows()
	if err != nil || len(flows) != 1 || flows[0].Client != client || flows[0].State != was[0].State {
		t.Errorf("flows %v, %v; want %v", flows, err, was)
	}
	n.steps(t, []step{{name: "the flow continues", in: wire{client: client, dst: vip, tunnel: pod.Addr(), tunnelOption: list{second}},
		out: wire{client: client, dst: pod}, verdict: untouched, counter: "tunnel-delivered"}})
	if names, err := pinsIn(filepath.Join(pinDir(t, n.ns), layout)); err != nil || slices.Contains(names, filepath.Base(unkeyedFlows)) {
		t.Errorf("pins are %v, %v; want the table without a key gone", names, err)
	}
}

// leaveUnkeyed closes the agent and leaves its flows in a table with the older name, each
// in another set than its key selects, and no key.
func (n *node) leaveUnkeyed(t *testing.T) {
	t.Helper()
	old, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: uint32(binary.Size(dsrServerFlowSet{})),
		MaxEntries: n.agent.obj.FlowTable.MaxEntries(), Flags: unix.BPF_F_MMAPABLE})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	var set dsrServerFlowSet
	for i := range old.MaxEntries() {
		if err := n.agent.obj.FlowTable.Lookup(i, &set); err != nil {
			t.Fatal(err)
		}
		if set.Tag == [flowWays]uint32{} {
			continue
		}
		set.Lock.Val = 0
		if err := old.Put((i+1)%old.MaxEntries(), set); err != nil {
			t.Fatal(err)
		}
	}
	dir := pinDir(t, n.ns)
	err = errors.Join(n.agent.Close(), old.Pin(filepath.Join(dir, unkeyedFlows)),
		os.Remove(filepath.Join(dir, layout, dsrMapFlowTable)), os.Remove(filepath.Join(dir, layout, flowKeyPin)))
	if err != nil {
		t.Fatal(err)
	}
}

func pinsIn(folder string) (names []string, err error) {
	entries, err := os.ReadDir(folder)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// TestFlowsAreLeftForReleasesWithoutKeys downgrades to a release that reads only the
// first layout's flows, and upgrades again.
func TestFlowsAreLeftForReleasesWithoutKeys(t *testing.T) {
	n := newNode(t)
	n.set(t, entry(service.Tunnel, vip, pod, service.TCP))
	n.establish(t, client)
	dir := pinDir(t, n.ns)
	if err := n.agent.Close(); err != nil {
		t.Fatal(err)
	}
	// Such a release leaves unknown objects alone.
	aside := dir + "-aside"
	for _, name := range []string{dsrMapFlowTable, flowKeyPin} {
		if err := os.Rename(filepath.Join(dir, layout, name), aside+name); err != nil {
			t.Fatal(err)
		}
	}
	n.agent = openAgent(t, n.ns, Config{}, tc.Open) // carries over as those do
	flows, err := n.agent.Flows()
	if err != nil || len(flows) != 1 || flows[0].Client != client || flows[0].State != "established" {
		t.Errorf("flows %v, %v; want the one that was left", flows, err)
	}
	n.leaveUnkeyed(t)
	for _, name := range []string{dsrMapFlowTable, flowKeyPin} {
		if err := os.Rename(aside+name, filepath.Join(dir, layout, name)); err != nil {
			t.Fatal(err)
		}
	}
	n.agent = openAgent(t, n.ns, Config{}, tc.Open)
	if flows, err = n.agent.Flows(); err != nil || len(flows) != 1 || flows[0].Client != client {
		t.Errorf("flows %v, %v; want the one of the release without keys", flows, err)
	}
	if names, err := pinsIn(dir); err != nil || slices.Contains(names, layout1Flows) {
		t.Errorf("pins are %v, %v; want what was left for others gone", names, err)
	}
}
