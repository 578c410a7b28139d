package dsr

import (
	"errors"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/bpffs"
	"github.com/fairlead/fairlead/internal/bpfload"
	"github.com/fairlead/fairlead/internal/bpfload/layouttest"
	"github.com/fairlead/fairlead/internal/tc"
	"github.com/fairlead/fairlead/lab/testkit"
)

// openAnother makes a release with other map layouts take over, with its programs
// replacing those at points.
func (n *node) openAnother(t *testing.T, key [serverHashKeys]uint64, points []tc.Point) *ebpf.Collection {
	t.Helper()
	var all *ebpf.Collection
	testkit.Do(t, n.ns, func() error {
		dir, err := bpffs.Open(pinDir(t, n.ns))
		must(t, err)
		defer dir.Close()
		spec, err := loadDsr()
		must(t, err)
		flows := spec.Maps[dsrMapFlowTable]
		flows.MaxEntries = flowSets(DefaultMaxFlows)
		must(t, errors.Join(spec.Variables[dsrVarFlowKey].Set(key), spec.Variables[dsrVarFlowSets].Set(flows.MaxEntries)))
		next := layouttest.Next(t, spec, kept, dsrMapLocalVips, dsrMapFlowTable, dsrMapNextServers)
		attached, err := tc.Programs{}.Attached(dir)
		must(t, err)
		state, err := bpfload.OpenState(spec, bpfload.Source{Folder: dir.Path(layout), Maps: next, History: history, Attached: attached})
		must(t, err)
		all, err = ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: dir.Path(layout)}})
		must(t, err)
		t.Cleanup(all.Close)
		_, err = state.Carry()
		must(t, errors.Join(err, state.Replace(all.Programs[dsrProgToServer], all.Programs[dsrProgFromServer])))
		for _, p := range points {
			l, err := link.LoadPinnedLink(dir.Path(p.Pin()), nil)
			must(t, err)
			must(t, errors.Join(l.Update(all.Programs[p.Program]), l.Close()))
		}
		return state.Settle()
	})
	return all
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestForwardAndBack: a release with other layouts takes over, and this one comes back.
// Both know each other's flows, including those that started during the takeover.
func TestForwardAndBack(t *testing.T) {
	n := newNode(t)
	if n.agent.hook.Kind() != "tcx" {
		t.Skip("no tcx in this kernel")
	}
	clients := make([]netip.AddrPort, 3)
	for i := range clients {
		clients[i] = netip.AddrPortFrom(client.Addr(), client.Port()+uint16(i))
	}
	open := func(programs map[string]*ebpf.Program, c netip.AddrPort) {
		n.run(t, programs[dsrProgToServer], n.pod, wire{client: c, dst: vip, flags: "S", tunnel: pod.Addr()}.bytes(t))
		n.run(t, programs[dsrProgFromServer], n.pod, wire{client: pod, dst: c, flags: "SA", ttl: 64}.bytes(t))
		n.run(t, programs[dsrProgToServer], n.pod, wire{client: c, dst: vip, tunnel: pod.Addr()}.bytes(t))
	}
	n.set(t, entry(service.Tunnel, vip, pod, service.TCP))
	n.establish(t, clients[0])
	key, err := n.agent.flowKey()
	must(t, err)
	points := n.agent.hook.Points()
	must(t, n.agent.Close())
	another := n.openAnother(t, key, points)
	if verdict, out := n.run(t, another.Programs[dsrProgToServer], n.pod, wire{client: clients[0], dst: vip, tunnel: pod.Addr(), tunnelOption: list{second}}.bytes(t)); verdict != untouched || len(out) == 0 {
		t.Errorf("the other release does not know the first flow: verdict %d", verdict)
	}
	open(another.Programs, clients[1])

	n.agent = openAgent(t, n.ns, Config{}, func(dir *bpffs.Dir, programs tc.Programs) (tc.Hook, error) {
		open(another.Programs, clients[2]) // after the table was copied
		return tc.Open(dir, programs)
	})
	wantEntries(t, n.agent, entry(service.Tunnel, vip, pod, service.TCP))
	flows, err := n.agent.Flows()
	must(t, err)
	var known []uint16
	for _, f := range flows {
		if f.State != "established" {
			t.Errorf("flow %+v is not established", f)
		}
		known = append(known, f.Client.Port())
	}
	slices.Sort(known)
	if want := []uint16{clients[0].Port(), clients[1].Port(), clients[2].Port()}; !slices.Equal(known, want) {
		t.Errorf("flows of the ports %v are known, want %v", known, want)
	}
	if names, err := filepath.Glob(filepath.Join(pinDir(t, n.ns), layout, "*-1000")); err != nil || len(names) > 0 {
		t.Errorf("%v are still pinned, %v", names, err)
	}
}
