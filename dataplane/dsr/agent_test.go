package dsr

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/bpffs"
	"github.com/fairlead/fairlead/internal/netlist"
	"github.com/fairlead/fairlead/internal/tc"
	"github.com/fairlead/fairlead/lab/testkit"
)

var addrComparer = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
var portComparer = cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })

func wantEntries(t *testing.T, h *Agent, want ...Entry) {
	t.Helper()
	got, err := h.List()
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(want, Entry.Compare)
	if diff := cmp.Diff(want, got, addrComparer, portComparer); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

func TestSetHoldsExactlyWhatIsAsked(t *testing.T) {
	n := newNode(t)
	a, b := entry(service.Tunnel, vip, pod, service.TCP), entry(service.DSRNAT, vip, pod, service.UDP)
	c := entry(service.Tunnel, vip6, pod6, service.TCP)
	far := entry(service.Tunnel, vip, second, service.TCP)
	for _, step := range []struct{ set, want []Entry }{
		{[]Entry{a, b, c}, []Entry{a, b, c}},
		{[]Entry{a, b, c}, []Entry{a, b, c}},
		{[]Entry{a, a}, []Entry{a}},
		{[]Entry{b, far}, []Entry{b}},
		{nil, nil},
		{[]Entry{c, a}, []Entry{a, c}},
	} {
		n.set(t, step.set...)
		wantEntries(t, n.agent, step.want...)
	}
	mixed := entry(service.Tunnel, vip, pod6, service.TCP)
	mixed.Deliver = pod.Addr()
	n.set(t, mixed)
	wantEntries(t, n.agent, mixed)
}

func TestSetRefusesByNameAndHoldsTheRest(t *testing.T) {
	n := newNode(t)
	good := entry(service.Tunnel, vip, pod, service.TCP)
	deliver := entry(service.DSRNAT, vip, pod, service.TCP)
	deliver.Deliver = second.Addr()
	for _, tc := range []struct {
		bad  Entry
		want string
	}{
		{entry(service.FullNAT, vip, pod, service.TCP), `fullnat TCP 10.1.1.1:80 at 172.16.1.2:8080: forwarding mode "fullnat" does not use the DSR agent`},
		{entry(service.Tunnel, vip, pod, service.SCTP), "SCTP: the backend's port must be that of the VIP, 80"},
		{entry(service.Tunnel, ap("0.0.0.0:80"), pod, service.TCP), "VIP: must be a unicast address"},
		{entry(service.Tunnel, ap("10.1.1.1:0"), pod, service.TCP), "VIP: must be a unicast address"},
		{entry(service.Tunnel, vip, ap("224.0.0.1:80"), service.TCP), "backend: must be a unicast address"},
		{entry(service.Tunnel, vip, pod6, service.TCP), "set deliver to the backend's address"},
		{entry(service.DSRNAT, vip, pod6, service.TCP), "different IP families: use tunnel"},
		{deliver, "deliver: only for tunnel and dr"},
		{entry(service.Tunnel, vip, ap("172.16.1.2:9090"), service.TCP), "cannot distinguish two backends with one address, and 172.16.1.2:8080 exists"},
	} {
		err := n.agent.Set([]Entry{good, tc.bad})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want one with %q", tc.bad, err, tc.want)
		}
		wantEntries(t, n.agent, good)
	}
}

// TestOneServerThatCannotBeFoundSparesOthers: the kernel returns an error for the route
// to one backend. The state of that one stays, others are added and removed, and the
// error names it.
func TestOneServerThatCannotBeFoundSparesOthers(t *testing.T) {
	n := newNode(t)
	a, b := entry(service.Tunnel, vip, pod, service.TCP), entry(service.Tunnel, vip6, pod6, service.TCP)
	n.set(t, a)
	before := n.attachedAt(t)
	get := n.agent.routes.get
	n.agent.routes.get = func(server net.IP) ([]netlink.Route, error) {
		if server.Equal(pod.Addr().AsSlice()) {
			return nil, unix.EAFNOSUPPORT
		}
		return get(server)
	}
	fails := func(set []Entry, want ...Entry) {
		t.Helper()
		err := n.agent.Set(set)
		if err == nil || !strings.Contains(err.Error(), "route to 172.16.1.2: address family not supported") {
			t.Errorf("error %v", err)
		}
		wantEntries(t, n.agent, want...)
	}
	fails([]Entry{a, b}, a, b)
	fails([]Entry{a}, a)
	if now := n.attachedAt(t); !slices.Equal(now, before) {
		t.Errorf("attached are %v, were %v", now, before)
	}
	n.set(t, b) // no longer desired entries are removed all the same
	wantEntries(t, n.agent, b)
	fails([]Entry{a, b}, b)
	n.agent.routes.get = get
	n.set(t, a, b)
	wantEntries(t, n.agent, a, b)
	n.set(t, b)
	wantEntries(t, n.agent, b)
}

func TestEntriesOfAFrontend(t *testing.T) {
	f := desired.Frontend{Key: entry(service.Tunnel, vip, pod, service.TCP).Key, Method: service.Tunnel,
		Backends: []service.Backend{{Addr: pod, Weight: 1}, {Addr: second}}}
	want := []Entry{entry(service.Tunnel, vip, pod, service.TCP), entry(service.Tunnel, vip, second, service.TCP)}
	if got := Entries(f); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	f.Method = service.FullNAT
	if got := Entries(f); got != nil {
		t.Errorf("fullnat: got %v, want none", got)
	}
}

// attachedAt lists the programs at every device of a namespace, with tcx and clsact.
func (n *node) attachedAt(t *testing.T) []string {
	t.Helper()
	var found []string
	testkit.Do(t, n.ns, func() error {
		links, err := netlist.Whole(netlink.LinkList)
		if err != nil {
			return err
		}
		for _, l := range links {
			for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
				result, err := link.QueryPrograms(link.QueryOptions{Target: l.Attrs().Index, Attach: at})
				if errors.Is(err, unix.EINVAL) {
					continue // no tcx in this kernel
				}
				if err != nil {
					return err
				}
				for range result.Programs {
					found = append(found, fmt.Sprintf("%s %s", l.Attrs().Name, at))
				}
			}
			qdiscs, err := netlist.Whole(func() ([]netlink.Qdisc, error) { return netlink.QdiscList(l) })
			if err != nil {
				return err
			}
			for _, q := range qdiscs {
				if q.Type() == "clsact" {
					found = append(found, l.Attrs().Name+" clsact")
				}
			}
		}
		return nil
	})
	return found
}

func TestDetachLeavesNothing(t *testing.T) {
	for name, hook := range hooks {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			if err := n.agent.Detach(); err != nil {
				t.Fatal(err)
			}
			for restarted := range 2 {
				n.agent = openAgent(t, n.ns, Config{}, hook)
				n.set(t, entry(service.Tunnel, vip, pod, service.TCP), entry(service.Tunnel, vip, ap("10.0.0.105:80"), service.TCP))
				if got := n.attachedAt(t); len(got) < 2 {
					t.Fatalf("attached at %v only", got)
				}
				if restarted == 1 {
					// Detaching what a predecessor attached.
					if err := n.agent.Close(); err != nil {
						t.Fatal(err)
					}
					n.agent = openAgent(t, n.ns, Config{}, hook)
				}
				if err := n.agent.Detach(); err != nil {
					t.Fatal(err)
				}
				if got := n.attachedAt(t); len(got) > 0 {
					t.Errorf("left at %v", got)
				}
				if _, err := os.Stat(pinDir(t, n.ns)); !os.IsNotExist(err) {
					t.Errorf("pins are left: %v", err)
				}
			}
			if err := n.agent.Set(nil); !errors.Is(err, ErrClosed) {
				t.Errorf("Set after Detach gave %v", err)
			}
		})
	}
}

func TestDevicesComeAndGo(t *testing.T) {
	for name, hook := range hooks {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			if err := n.agent.Detach(); err != nil {
				t.Fatal(err)
			}
			n.agent = openAgent(t, n.ns, Config{}, hook)
			if name == "tcx" && n.agent.hook.Kind() != name {
				t.Skip("no tcx in this kernel")
			}
			late := entry(service.Tunnel, vip, ap("172.16.1.77:80"), service.TCP)
			n.setOnly(t, late)
			wantEntries(t, n.agent)
			if got := n.agent.Describe().Attached; len(got) != 1 || !strings.Contains(got[0], "172.16.1.77 is not on this node: routed through up0 to another node") {
				t.Errorf("described as %q", got)
			}
			for range 2 { // the second device has another index
				testkit.Do(t, n.ns, func() error {
					index, err := addVeth("late0", "late1")
					if err != nil {
						return err
					}
					return addRoute(index, "172.16.1.77/32", "")
				})
				n.eventuallyAttached(t, "late0: "+name+": servers behind it")
				wantEntries(t, n.agent, late)
				testkit.Do(t, n.ns, func() error {
					l, err := netlink.LinkByName("late0")
					if err != nil {
						return err
					}
					return netlink.LinkDel(l)
				})
				n.eventuallyAttached(t, "172.16.1.77 is not on this node: routed through up0 to another node")
				wantEntries(t, n.agent)
			}
		})
	}
}

func (n *node) eventuallyAttached(t *testing.T, want ...string) {
	t.Helper()
	testkit.Eventually(t, patience, func() error {
		if got := n.agent.Describe().Attached; !slices.Equal(got, want) {
			return fmt.Errorf("attached %q, want %q", got, want)
		}
		return nil
	})
}

func TestASecondAgentIsRefused(t *testing.T) {
	n := newNode(t)
	testkit.Do(t, n.ns, func() error {
		if h, err := Open(Config{PinDir: pinDir(t, n.ns)}); !errors.Is(err, bpffs.ErrInUse) {
			t.Errorf("Open gave %v, %v", h, err)
		}
		return nil
	})
	if err := n.agent.Close(); err != nil {
		t.Fatal(err)
	}
	n.agent = openAgent(t, n.ns, Config{}, tc.Open)
}

func TestTheFlowTableKeepsItsSize(t *testing.T) {
	n := newNode(t)
	n.set(t, entry(service.Tunnel, vip, pod, service.TCP))
	n.run(t, n.agent.obj.ToServer, n.pod, wire{client: client, dst: vip, flags: "S", tunnel: pod.Addr()}.bytes(t))
	if err := n.agent.Close(); err != nil {
		t.Fatal(err)
	}
	n.agent = openAgent(t, n.ns, Config{MaxFlows: 1000}, tc.Open)
	if flows, err := n.agent.Flows(); err != nil || len(flows) != 1 || flows[0].Client != client || flows[0].VIP != vip || flows[0].Server != pod {
		t.Errorf("flows %v, %v; want the one from before", flows, err)
	}
	if err := n.agent.Detach(); err != nil {
		t.Fatal(err)
	}
	n.agent = openAgent(t, n.ns, Config{MaxFlows: 1000}, tc.Open)
	if got := n.agent.obj.FlowTable.MaxEntries() * flowWays; got != 1000 {
		t.Errorf("a new table has room for %d flows, want 1000", got)
	}
}

func TestLocal(t *testing.T) {
	n := newNode(t)
	for addr, want := range map[string]bool{
		"172.16.1.2": true, "2001:db8:16:1::2": true, "10.0.0.105": true, "2001:db8::105": true,
		"172.16.2.2": false, "10.0.0.106": false, "2001:db8::106": false, "192.168.0.7": false,
	} {
		got, err := n.agent.Local(netip.MustParseAddr(addr))
		if err != nil || got != want {
			t.Errorf("Local(%s) = %v, %v; want %v", addr, got, err, want)
		}
	}
}
