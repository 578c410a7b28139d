package cni

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/agent/socket"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/enforce/kernel"
	"github.com/fairlead/fairlead/vdn/node"
)

// daemon runs the node's daemon. Without works it only answers requests.
func (r *rig) daemon(works bool) (stop func()) {
	r.t.Helper()
	log := slog.New(slog.DiscardHandler)
	enforcer, err := kernel.Open(kernel.Config{PinDir: "/sys/fs/bpf/vdn", Uplinks: []vdn.Uplink{{Device: "eth1", Rate: 1e9}}, Log: log})
	must(r.t, err)
	d := node.New(node.Config{
		Node:       vdn.Node{Name: "n1", Means: "kernel", Uplinks: []vdn.Uplink{{Device: "eth1", Rate: 1e9}}},
		Controller: r.vdn, Enforcer: enforcer, Kept: filepath.Join(r.dataDir, "daemon", "plan.json"), Log: log,
	})
	r.running, r.enforcer = d, enforcer
	l, err := socket.Listen(node.Socket)
	must(r.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		if err := d.Serve(ctx, l); err != nil {
			r.t.Errorf("daemon: %v", err)
		}
	})
	if works {
		all.Go(func() {
			if err := d.Run(ctx); err != nil {
				r.t.Errorf("daemon: %v", err)
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
		r.t.Cleanup(func() { must(r.t, kernel.Clean("/sys/fs/bpf/vdn")) })
		must(r.t, enforcer.Close())
	}
}

// TestDELAndCHECKAskNoDaemon checks that a hanging daemon does not block the deletion of
// pods.
func TestDELAndCHECKAskNoDaemon(t *testing.T) {
	r := newRig(t)
	ns := testkit.NetNS(t)
	nameless := strings.Replace(r.conf("science"), `"node":"n1",`, "", 1) // as in a configuration for all nodes
	result, err := Add(args(nameless, "one", ns.Path()))
	must(t, err)
	var asked atomic.Int64
	must(t, os.MkdirAll(filepath.Dir(node.Socket), 0o700))
	l, err := net.Listen("unix", node.Socket)
	must(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			asked.Add(1)
			defer c.Close() // sends nothing until then
		}
	}()
	must(t, Check(args(with(t, nameless, result), "one", ns.Path())))
	must(t, Del(args(nameless, "one", ns.Path())))
	ipam := strings.Replace(r.ipam("science"), `"node":"n1",`, "", 1)
	must(t, DelAddresses(args(ipam, "two", ns.Path())))
	if n := asked.Load(); n > 0 {
		t.Errorf("the daemon was asked %d times", n)
	}
	r.nothingLeft()
}

// TestADeafControllerHoldsNoPod checks that DEL completes in time and records the lease to
// be released later, and that CHECK succeeds.
func TestADeafControllerHoldsNoPod(t *testing.T) {
	r := newRig(t)
	ns := testkit.NetNS(t)
	conf := r.conf("science", `"timeout":"1m"`)
	result, err := Add(args(conf, "one", ns.Path()))
	must(t, err)
	release := make(chan struct{})
	r.onRequest(func(*http.Request) { <-release })
	began := time.Now()
	must(t, Check(args(with(t, conf, result), "one", ns.Path())))
	must(t, Del(args(conf, "one", ns.Path())))
	if took := time.Since(began); took > 30*time.Second { // typically 4s; minutes without the limit
		t.Errorf("CHECK and DEL took %v", took)
	}
	if n := (notes{r.dataDir}).all(owed); len(n) != 1 || len(links(t, ns)) > 0 {
		t.Errorf("owed %+v, devices %q", n, links(t, ns))
	}
	r.onRequest(nil)
	close(release)
	must(t, GC(args(conf, "", "")))
	r.nothingLeft()
}

// TestNodeDaemon checks that ADD waits for enforcement, so that a pod never runs without
// its network's restrictions.
func TestNodeDaemon(t *testing.T) {
	r := newRig(t)
	stop := r.daemon(true)
	one, two := testkit.NetNS(t), testkit.NetNS(t)
	a := args(r.conf("science"), "one", one.Path())
	first, err := Add(a)
	must(t, err)
	second, err := Add(args(r.conf("science"), "two", two.Path()))
	must(t, err)
	reaches(t, one, two, hosts(second)...)
	must(t, Check(args(with(t, r.conf("science"), first), "one", one.Path())))
	must(t, one.Do(func() error { // from a foreign source address
		p, err := netlink.ParseAddr("10.9.0.98/24")
		must(t, err)
		must(t, netlink.AddrAdd(link(t, "net1"), p))
		d := net.Dialer{Timeout: time.Second, LocalAddr: &net.TCPAddr{IP: p.IP}}
		c, err := d.Dial("tcp", netip.AddrPortFrom(hosts(second)[0], 80).String())
		var late net.Error
		if err == nil || !errors.As(err, &late) || !late.Timeout() {
			t.Errorf("another's address gets out: %v, %v", c, err)
		}
		return nil
	}))
	must(t, Del(a))
	must(t, Del(args(r.conf("science"), "two", two.Path())))
	r.onRequest(func(q *http.Request) {
		if strings.HasSuffix(q.URL.Path, "/up") {
			must(t, one.Do(func() error { return netlink.LinkSetName(link(t, "net1"), "eth7") }))
		}
	})
	_, err = Add(a)
	refusedWith(t, err, types.ErrTryAgainLater, "net1")
	r.onRequest(nil)
	if left := links(t, one); len(left) > 0 {
		t.Errorf("the pod has %q", left)
	}
	stop()
	r.nothingLeft()
}

// TestNodeCalledByItsDaemon uses a configuration for all nodes, which names none. The lease
// gets the node name that the daemon knows, or without a daemon the hostname.
func TestNodeCalledByItsDaemon(t *testing.T) {
	r := newRig(t)
	host, err := os.Hostname()
	must(t, err)
	a := args(r.conf("science", `"node":""`), "one", testkit.NetNS(t).Path())
	leasedAt := func(want string) {
		t.Helper()
		_, err := Add(a)
		must(t, err)
		if lease, err := r.store.Attachment("one.net1"); err != nil || lease.Node != want {
			t.Errorf("the lease is %+v, %v; want one at node %s", lease, err, want)
		}
		must(t, Del(a))
	}
	leasedAt(host)
	stop := r.daemon(true)
	leasedAt("n1")
	stop()
	must(t, os.WriteFile(node.Socket, nil, 0o600)) // as a killed daemon leaves it
	if got := nodeName(); got != host {
		t.Errorf("without an answer of the daemon the node is %q, want %q", got, host)
	}
	must(t, os.Remove(node.Socket))
	r.nothingLeft()
}

// TestNICIsTheNodesAgain checks that a NIC returned to the node has no pod enforcement.
func TestNICIsTheNodesAgain(t *testing.T) {
	r := newRig(t)
	stop := r.daemon(true)
	a := args(r.conf("whole"), "one", testkit.NetNS(t).Path())
	_, err := Add(a)
	must(t, err)
	must(t, Del(a))
	p, err := netlink.ParseAddr("10.9.0.2/24")
	must(t, err)
	must(t, netlink.AddrAdd(link(t, "nic1"), p))
	testkit.Eventually(t, within, func() error {
		c, err := net.DialTimeout("tcp", "10.9.0.1:9", time.Second)
		if err == nil || errors.Is(err, unix.ECONNREFUSED) { // any response counts
			return nil
		}
		return fmt.Errorf("the node reaches nobody by its NIC: %v, %w", c, err)
	})
	stop()
	r.nothingLeft()
}

// TestNodeDaemonAway checks that ADD reports an absent or stuck daemon and leaves nothing
// behind.
func TestNodeDaemonAway(t *testing.T) {
	r := newRig(t)
	a := args(r.conf("science", `"timeout":"5s"`), "one", testkit.NetNS(t).Path())
	stop := r.daemon(false)
	_, err := Add(a)
	refusedWith(t, err, types.ErrTryAgainLater, "has not applied the plan with attachment one.net1 within 5s")
	stop()
	must(t, os.WriteFile(node.Socket, nil, 0o600)) // as a killed daemon leaves it
	_, err = Add(a)
	refusedWith(t, err, types.ErrTryAgainLater, "fairlead vdn agent")
	refusedWith(t, Status(a), types.ErrPluginNotAvailable, "fairlead vdn agent")
	refusedWith(t, StatusAddresses(args(r.ipam("science"), "", "")), types.ErrPluginNotAvailable, "fairlead vdn agent")
	must(t, os.Remove(node.Socket))
	must(t, Status(a))
	r.nothingLeft()
}
