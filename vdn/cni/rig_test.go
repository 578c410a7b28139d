package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/client"
	"github.com/fairlead/fairlead/vdn/enforce"
	"github.com/fairlead/fairlead/vdn/node"
	"github.com/fairlead/fairlead/vdn/server"
	"github.com/fairlead/fairlead/vdn/store"
)

const within = 30 * time.Second

// rig is a node, which is the test process itself, with devices on a segment and a
// controller:
//
//	pods ─ eth1 ──┐
//	       nic1 ──┤ bridge in its own namespace: 10.9.0.1, fd09::1
//	       nic2 ──┘
type rig struct {
	t       *testing.T
	lan     *netns.NS
	dataDir string
	store   *store.Store
	address string
	stop    func()
	vdn     *client.Client

	// running and enforcer are the node's daemon, if it runs.
	running  *node.Daemon
	enforcer enforce.Enforcer

	mu sync.Mutex
	// hook receives each request before the controller does.
	hook func(*http.Request)
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigAt(t, "127.0.0.1:0")
}

// newRigAt is newRig with a controller address.
func newRigAt(t *testing.T, controller string) *rig {
	t.Helper()
	r := &rig{t: t, lan: testkit.NetNS(t), dataDir: t.TempDir(), address: controller}
	testkit.Do(t, r.lan, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "lan"
		bridge := &netlink.Bridge{LinkAttrs: attrs}
		err := netlink.LinkAdd(bridge)
		for _, a := range []string{"10.9.0.1/24", "fd09::1/64"} {
			p, _ := netlink.ParseAddr(a)
			p.Flags = 0x02 // nodad
			err = errors.Join(err, netlink.AddrAdd(bridge, p))
		}
		return errors.Join(err, netlink.LinkSetUp(bridge))
	})
	for _, name := range []string{"eth1", "nic1", "nic2"} {
		r.plug(name)
	}
	s, err := store.Open(t.TempDir(), "daejeon.example")
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	r.store = s
	r.start()
	t.Cleanup(func() { r.stop() })
	r.vdn, err = client.New(client.Config{URL: "http://" + r.address})
	must(t, err)
	for _, n := range networks() {
		must(t, r.vdn.PutNetwork(context.Background(), n))
	}
	return r
}

// plug adds a device to the node, with its other end in the segment's bridge.
func (r *rig) plug(name string) {
	r.t.Helper()
	veth(r.t, name)
	must(r.t, netlink.LinkSetNsFd(link(r.t, name+"p"), r.lan.FD()))
	testkit.Do(r.t, r.lan, func() error {
		other, bridge := link(r.t, name+"p"), link(r.t, "lan")
		return errors.Join(netlink.LinkSetMaster(other, bridge), netlink.LinkSetUp(other))
	})
	testkit.Eventually(r.t, within, func() error { // the kernel forwards nothing before
		return errors.Join(carries(name), r.lan.Do(func() error { return errors.Join(carries(name+"p"), carries("lan")) }))
	})
}

// carries returns an error until a device forwards packets.
func carries(name string) error {
	l, err := netlink.LinkByName(name)
	if err == nil && l.Attrs().OperState != netlink.OperUp {
		err = fmt.Errorf("%s is %s", name, l.Attrs().OperState)
	}
	return err
}

// unplug deletes a device, wherever it is.
func (r *rig) unplug(name string) {
	r.t.Helper()
	testkit.Do(r.t, r.lan, func() error { return netlink.LinkDel(link(r.t, name+"p")) })
}

// networks returns the networks of a rig's controller.
func networks() []vdn.Network {
	p := netip.MustParsePrefix
	a := netip.MustParseAddr
	return []vdn.Network{{
		Name: "science", Devices: []string{"eth0", "eth1"}, MTU: 1400,
		Subnets: []vdn.Subnet{
			{CIDR: p("10.9.0.0/24"), Gateway: a("10.9.0.1"), Ranges: []vdn.Range{{First: a("10.9.0.10"), Last: a("10.9.0.99")}},
				Reserved: []vdn.Reservation{{Address: a("10.9.0.77"), Owner: "lab/telescope"}}},
			{CIDR: p("fd09::/64"), Gateway: a("fd09::1"), Ranges: []vdn.Range{{First: a("fd09::10"), Last: a("fd09::ff")}}},
		},
		Routes: []vdn.Route{{Dst: p("10.8.0.0/16")}, {Dst: p("10.7.0.0/16"), GW: a("10.9.0.2")}, {Dst: p("fd08::/64")}},
		DNS:    vdn.DNS{Nameservers: []netip.Addr{a("10.9.0.1")}, Search: []string{"science.example"}},
	}, {
		Name: "whole", Mode: vdn.HostDevice, Devices: []string{"nic1", "nic2"}, MTU: 1500,
		Subnets: []vdn.Subnet{
			{CIDR: p("10.9.1.0/24"), Ranges: []vdn.Range{{First: a("10.9.1.10"), Last: a("10.9.1.99")}}},
			{CIDR: p("fd09:1::/64")},
		},
	}, {
		Name: "tiny", Devices: []string{"eth1"},
		Subnets: []vdn.Subnet{{CIDR: p("10.9.2.0/24"), Ranges: []vdn.Range{{First: a("10.9.2.5"), Last: a("10.9.2.5")}}}},
	}}
}

// start starts the controller, or restarts it at the same address.
func (r *rig) start() {
	r.t.Helper()
	l, err := net.Listen("tcp", r.address)
	must(r.t, err)
	r.address = l.Addr().String()
	controller := server.New(server.Options{Store: r.store, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		hook := r.hook
		r.mu.Unlock()
		if hook != nil {
			hook(q)
		}
		controller.ServeHTTP(w, q)
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l) // stopped by Close
	}()
	r.stop = sync.OnceFunc(func() {
		srv.Close()
		<-done
	})
}

func (r *rig) onRequest(f func(*http.Request)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hook = f
}

// conf returns a configuration of a network.
func (r *rig) conf(network string, more ...string) string {
	return fmt.Sprintf(`{"cniVersion":"1.1.0","name":%q,"type":"fairlead-cni","controller":"http://%s","node":"n1","dataDir":%q%s}`,
		network, r.address, r.dataDir, prefixed(more))
}

func prefixed(more []string) string {
	if len(more) == 0 {
		return ""
	}
	return "," + strings.Join(more, ",")
}

// args returns the arguments of a call for one pod.
func args(conf, container, path string) *skel.CmdArgs {
	return &skel.CmdArgs{ContainerID: container, Netns: path, IfName: "net1", StdinData: []byte(conf)}
}

// with adds the result of ADD, as runtimes do.
func with(t *testing.T, conf string, result *current.Result) string {
	t.Helper()
	text, err := json.Marshal(result)
	must(t, err)
	return strings.TrimSuffix(conf, "}") + `,"prevResult":` + string(text) + "}"
}

// refusedWith checks the code and the words of an error.
func refusedWith(t *testing.T, err error, code uint, words ...string) {
	t.Helper()
	var e *types.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("error is %v (%+v), want code %d", err, e, code)
	}
	for _, w := range words {
		if !strings.Contains(e.Msg, w) {
			t.Errorf("%q does not say %q", e.Msg, w)
		}
	}
}

// leases returns the IDs of all leases.
func (r *rig) leases() (ids []string) {
	r.t.Helper()
	all, err := r.vdn.Attachments(context.Background(), "", "")
	must(r.t, err)
	for _, a := range all {
		ids = append(ids, a.ID)
	}
	return ids
}

// nothingLeft checks that a node and its controller have no trace of a pod.
func (r *rig) nothingLeft() {
	r.t.Helper()
	if ids := r.leases(); len(ids) > 0 {
		r.t.Errorf("leases are left: %q", ids)
	}
	n := notes{r.dataDir}
	if left := append(n.all(attached), n.all(owed)...); len(left) > 0 {
		r.t.Errorf("notes are left: %+v", left)
	}
	for _, name := range []string{"nic1", "nic2"} {
		l := link(r.t, name)
		if l.Attrs().MTU != 1600 || l.Attrs().Alias != "" || l.Attrs().Flags&net.FlagUp == 0 {
			r.t.Errorf("%s is %+v", name, l.Attrs())
		}
	}
}

// links returns the names of all links except lo.
func links(t *testing.T, ns *netns.NS) (names []string) {
	t.Helper()
	testkit.Do(t, ns, func() error {
		all, err := netlink.LinkList()
		for _, l := range all {
			if l.Attrs().Name != "lo" {
				names = append(names, l.Attrs().Name)
			}
		}
		return err
	})
	return names
}

// reaches checks that one namespace reaches another's addresses over TCP.
func reaches(t *testing.T, from, to *netns.NS, addresses ...netip.Addr) {
	t.Helper()
	for _, a := range addresses {
		var l net.Listener
		testkit.Do(t, to, func() (err error) {
			l, err = net.Listen("tcp", netip.AddrPortFrom(a, 0).String())
			return err
		})
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Write([]byte("hello"))
				c.Close()
			}
		}()
		testkit.Eventually(t, within, func() error {
			return from.Do(func() error {
				c, err := net.DialTimeout("tcp", l.Addr().String(), time.Second)
				if err != nil {
					return err
				}
				defer c.Close()
				text, err := io.ReadAll(c)
				if string(text) != "hello" {
					return fmt.Errorf("%s answers %q, %v", a, text, err)
				}
				return nil
			})
		})
		l.Close()
	}
}

// hosts returns the addresses of a result.
func hosts(r *current.Result) (all []netip.Addr) {
	for _, p := range prefixes(r) {
		all = append(all, p.Addr())
	}
	return all
}
