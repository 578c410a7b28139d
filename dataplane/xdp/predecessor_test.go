package xdp

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/attach"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/device"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
	"github.com/fairlead/fairlead/dataplane/xdp/layout2"
	"github.com/fairlead/fairlead/internal/bpffs"
	"github.com/fairlead/fairlead/internal/netorder"
	"github.com/fairlead/fairlead/internal/sysctl"
	"github.com/fairlead/fairlead/lab/testkit"
)

// oldTwo is the data plane of layout 2, with its last object: testdata/balancer-v2.o.gz
// is dataplane/xdp/bpf/balancer_bpfel.o as it was before layout 3.
type oldTwo struct {
	t    *testing.T
	path string
	*ebpf.Collection
	inner      *ebpf.MapSpec
	lastServer uint32
}

func newOldTwo(t *testing.T, n *testNet, c Config) *oldTwo {
	t.Helper()
	packed, err := os.ReadFile("testdata/balancer-v2.o.gz")
	must(t, err)
	reader, err := gzip.NewReader(bytes.NewReader(packed))
	must(t, err)
	object, err := io.ReadAll(reader)
	must(t, err)
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
	must(t, err)
	for name, m := range spec.Maps {
		if m.MaxEntries == 1 && name[0] != '.' && name != "settings" {
			m.MaxEntries = 64
		}
		if name[0] != '.' {
			m.Pinning = ebpf.PinByName
		}
	}
	must(t, spec.Variables["back_by_redirect"].Set(true))
	o := &oldTwo{t: t, path: filepath.Join(c.PinDir, layout2.Folder), inner: spec.Maps["rings"].InnerMap.Copy()}
	must(t, os.MkdirAll(o.path, 0o700))
	t.Cleanup(func() { os.RemoveAll(o.path) })
	o.Collection, err = ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: o.path}})
	must(t, err)
	t.Cleanup(o.Close)
	set := struct {
		Layout              uint32
		Own4, Own6          bpf.BalancerAddr
		PortFirst, PortLast uint16
	}{2, entry.ToAddr(own4), entry.ToAddr(own6), 1024, 1000}
	must(t, o.Maps["settings"].Put(uint32(0), set))
	testkit.Do(t, n.balancer, func() error { return sysctl.SetAll(device.Sysctls(c.Interfaces)) })
	for name, index := range map[string]uint32{"eth0": n.eth0, "eth1": n.eth1} {
		testkit.Do(t, n.balancer, func() error {
			must(t, o.Maps["tx_ports"].Put(index, index))
			l, err := link.AttachXDP(link.XDPOptions{Program: o.Programs["balancer"], Interface: int(index), Flags: link.XDPDriverMode})
			must(t, err)
			must(t, l.Pin(filepath.Join(o.path, attach.Pin(name))))
			return l.Close()
		})
	}
	return o
}

// hold writes a frontend in layout 2. ring lists each slot's first and second backend,
// counted from 1.
func (o *oldTwo) hold(id uint32, f desired.Frontend, ring [][2]uint32) {
	o.t.Helper()
	for _, b := range f.Backends {
		o.lastServer++
		must(o.t, o.Maps["servers"].Put(o.lastServer, layout2.Server{
			Addr: entry.ToAddr(b.Addr.Addr()), Frontend: id, Weight: b.Weight, Generation: 1,
			Port: netorder.Port(b.Addr.Port()), Used: 1, Held: 1,
		}))
	}
	base := o.lastServer - uint32(len(f.Backends))
	spec := o.inner.Copy()
	spec.MaxEntries = uint32(len(ring))
	m, err := ebpf.NewMap(spec)
	must(o.t, err)
	defer m.Close()
	for i, s := range ring {
		var slot layout2.Slot
		if s[0] > 0 {
			slot.First = base + s[0]
		}
		if s[1] > 0 {
			slot.Second = base + s[1]
		}
		must(o.t, m.Put(uint32(i), slot))
	}
	must(o.t, o.Maps["rings"].Put(id, m))
	v := entry.Of(f)
	must(o.t, o.Maps["frontends"].Put(entry.ToKey(f.Key), layout2.Frontend{
		ID: id, Ring: id, Slots: uint32(len(ring)), RingSize: uint32(f.RingSize),
		Method: uint32(v.Method), Scheduler: uint32(v.Scheduler),
	}))
	must(o.t, o.Maps["frontends"].Put(entry.ToKey(entry.Whole(f.VIP)), layout2.Frontend{}))
}

// attachedPrograms returns the ids of the links' programs.
func (n *testNet) attachedPrograms(t *testing.T) [2]uint32 {
	return [2]uint32{n.attachedProgram(t, "eth0"), n.attachedProgram(t, "eth1")}
}

func TestTakeOverOfLayoutTwo(t *testing.T) {
	n := newNet(t)
	c := config()
	c.Interfaces = []string{"eth0", "eth1"}
	o := newOldTwo(t, n, c)
	plain := frontend(service.Tunnel, vips[false], service.TCP, servers[false])
	plain.Encapsulation, plain.Survival = service.IPIP, service.SecondChance
	changed := frontend(service.DSRNAT, vips[true], service.UDP, servers[true], "[fd05::2]:9")
	changed.Survival, changed.Backends[1].Weight = service.SecondChance, 7
	turns := frontend(service.FullNAT, "10.1.1.9:53", service.UDP, servers[false])
	turns.Scheduler, turns.Survival = service.RoundRobin, service.SecondChance
	one := make([][2]uint32, plain.RingSize)
	both := make([][2]uint32, changed.RingSize)
	for i := range one {
		one[i], both[i] = [2]uint32{1, 0}, [2]uint32{1, 2}
	}
	o.hold(0, plain, one)
	o.hold(1, changed, both)
	o.hold(2, turns, [][2]uint32{{1, 0}})
	traffic := n.steadyTraffic(t)
	traffic.more("by the old program")
	before := n.attachedPrograms(t)

	holder, err := bpffs.Open(o.path)
	must(t, err)
	n.refused(t, c, bpffs.ErrInUse, "stop the agent of the other version")
	must(t, holder.Close())
	small := c
	small.MaxBackends = 3
	n.refused(t, small, nil, "take over", "MaxBackends")
	if now := n.attachedPrograms(t); now != before {
		t.Fatalf("a failed Open made programs %v of %v", now, before)
	}
	if _, err := os.Stat(filepath.Join(c.PinDir, ownFolder)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a failed Open left its folder: %v", err)
	}
	traffic.more("after a failed Open")

	d := n.open(t, c)
	traffic.more("by the new program")
	traffic.end()
	if now := n.attachedPrograms(t); now[0] == before[0] || now[1] == before[1] || now[0] != now[1] {
		t.Errorf("programs %v became %v", before, now)
	}
	if got, want := listed(t, d), show(plain, turns, changed); got != want {
		t.Errorf("lists\n %s\nwant\n %s", got, want)
	}
	second := d.programmed[changed.Key].members.find(netip.MustParseAddrPort("[fd05::2]:9")).id
	for i, s := range d.rings.Slots(d.programmed[changed.Key].ring()) {
		first := d.programmed[changed.Key].members.find(netip.MustParseAddrPort(servers[true])).id
		if s.First == second && s.Older[0] != first || s.First != second && s.Older[0] != second {
			t.Fatalf("slot %d has forgotten who owned it: %+v", i, s)
		}
	}
	if _, err := os.Stat(o.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old folder is still there: %v", err)
	}
	must(t, d.Close())
	d = n.open(t, c) // again, with its own pins
	if lines := d.Describe().Attached; lines[0] != "eth0: native" || lines[1] != "eth1: native" {
		t.Errorf("attached %q", lines)
	}
}

// An agent dies during a takeover: its successor continues after one interface has been
// taken over, although another one has been removed since.
func TestTakeOverIsResumed(t *testing.T) {
	n := newNet(t)
	c := config()
	c.Interfaces = []string{"eth0", "eth1"}
	o := newOldTwo(t, n, c)
	f := frontend(service.Tunnel, vips[false], service.TCP, servers[false])
	f.Encapsulation, f.Survival = service.IPIP, service.SecondChance
	slots := make([][2]uint32, f.RingSize)
	for i := range slots {
		slots[i][0] = 1
	}
	o.hold(0, f, slots)
	d := newDataPlane(c.withDefaults())
	_, err := d.openPins()
	must(t, err)
	old, err := d.openPredecessor()
	must(t, err)
	testkit.Do(t, n.balancer, func() error {
		must(t, errors.Join(d.load(old), d.read(), d.inherit(old), d.kernel.TxPorts.Put(n.eth0, n.eth0), d.kernel.TxPorts.Put(n.eth1, n.eth1)))
		l, err := link.LoadPinnedLink(filepath.Join(o.path, attach.Pin("eth0")), nil)
		must(t, err)
		return errors.Join(l.Update(d.kernel.Balancer), l.Pin(d.pins.Path(attach.Pin("eth0"))), l.Close())
	})
	later := frontend(service.Tunnel, vips[true], service.TCP, servers[true])
	upsert(t, d, later)
	must(t, errors.Join(old.pins.Close(), d.Close()))
	testkit.Do(t, n.balancer, func() error {
		nic, err := netlink.LinkByName("eth1")
		must(t, err)
		return netlink.LinkDel(nic)
	})
	c.Interfaces = []string{"eth0"}
	d = n.open(t, c)
	if got, want := listed(t, d), show(f, later); got != want {
		t.Errorf("lists\n %s\nwant\n %s", got, want)
	}
	if _, err := os.Stat(o.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old folder is still there: %v", err)
	}
}

// Older releases pinned the scratch memory of their programs, and drop counters with one
// entry per reason. Their sizes are no reason to start with an empty flow table, or not
// at all.
func TestOlderReleasesSizes(t *testing.T) {
	for name, size := range map[string][2]uint32{"handover_scratch": {376, 1}, "drops": {8, 20}} {
		t.Run(name, func(t *testing.T) {
			n, c := newNet(t), config()
			d := n.open(t, c)
			f := frontend(service.Tunnel, vips[false], service.TCP, servers[false])
			f.Survival = service.FlowTable
			upsert(t, d, f)
			if v, _ := n.run(t, d, packet{src: clients[false], dst: vips[false], flags: "S"}.bytes(t)); v != redirect {
				t.Fatalf("opens: %v", v)
			}
			path := d.pins.Path(name)
			must(t, d.Close())
			_ = os.Remove(path)
			older, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: size[0], MaxEntries: size[1]})
			must(t, err)
			defer older.Close()
			must(t, older.Pin(path))
			d = n.open(t, c)
			if flows, err := d.Remembered(); flows != 1 || err != nil {
				t.Errorf("%d flows are remembered, want 1; %v", flows, err)
			}
			if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("it stays pinned, and is in the older release's way: %v", err)
			}
			rawRow{name: "counted", in: packet{src: clients[false], dst: "10.1.1.1:81", flags: "A"}.bytes(t), verdict: drop, drop: "no-frontend"}.check(t, n, d)
		})
	}
}

// A changed map size: everything is written again while it forwards, and nothing is lost.
// A size that is too small changes nothing.
func TestResize(t *testing.T) {
	n := newNet(t)
	c := config()
	d := n.open(t, c)
	kept := frontend(service.Tunnel, vips[false], service.TCP, servers[false])
	upsert(t, d, kept)
	drained := frontend(service.Tunnel, vips[true], service.UDP, servers[true], "[fd05::7]:9")
	upsert(t, d, drained)
	drained.Backends[1].Weight = 0
	upsert(t, d, drained)
	ranged := frontend(service.Tunnel, "10.1.1.1:8000", service.TCP, "172.16.5.8:0")
	ranged.Last = 8999
	upsert(t, d, ranged)
	programmed, rings := listed(t, d), ringsByAddress(t, d)
	traffic := n.steadyTraffic(t)
	traffic.more("before")
	must(t, d.Close())
	for name, change := range map[string]func(*Config){
		"MaxFrontends": func(c *Config) { c.MaxFrontends = 2 }, "MaxBackends": func(c *Config) { c.MaxBackends = 3 },
	} {
		small := c
		change(&small)
		n.refused(t, small, nil, name)
		traffic.more("after a refusal of a smaller " + name)
	}
	for _, change := range []func(*Config){
		func(c *Config) { c.MaxFrontends = 128 },
		func(c *Config) { c.MaxBackends, c.MaxMembers = 4, 4 },
		func(c *Config) { c.MaxChains, c.MaxFlows = 10, 1024 },
	} {
		change(&c)
		d = n.open(t, c)
		traffic.more("after a change of sizes")
		if now := listed(t, d); now != programmed {
			t.Errorf("lists\n %s\nprogrammed\n %s", now, programmed)
		}
		if now := ringsByAddress(t, d); now != rings {
			t.Errorf("rings are\n %s\nwere\n %s", now, rings)
		}
		if names, err := os.ReadDir(c.PinDir); err != nil || len(names) != 1 {
			t.Errorf("pins in %v, %v", names, err)
		}
		must(t, d.Close())
	}
	n.open(t, c)
	traffic.end()
}

// ringsByAddress formats all slots.
func ringsByAddress(t *testing.T, d *DataPlane) string {
	t.Helper()
	list, err := d.List()
	must(t, err)
	b := &strings.Builder{}
	for _, f := range list {
		fmt.Fprintln(b, f.Key)
		ring, err := resized{d}.Ring(f.Key)
		must(t, err)
		for _, slot := range ring {
			fmt.Fprintln(b, slot)
		}
	}
	return b.String()
}
