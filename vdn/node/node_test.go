package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/internal/sysctl"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/domain"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/throughput"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/client"
	"github.com/fairlead/fairlead/vdn/enforce"
	"github.com/fairlead/fairlead/vdn/enforce/kernel"
	"github.com/fairlead/fairlead/vdn/node"
	"github.com/fairlead/fairlead/vdn/server"
	"github.com/fairlead/fairlead/vdn/store"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const patience = time.Minute

// world is a domain with its real controller.
type world struct {
	*domain.Domain
	*client.Client
	t       *testing.T
	server  *server.Server
	web     *httptest.Server
	folder  string
	daemons map[string]*daemon
}

func newWorld(t *testing.T) *world {
	t.Helper()
	d, err := domain.Build(t.Context(), domain.Macvlan)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	kept, err := store.Open(t.TempDir(), "here.example")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kept.Close() })
	w := &world{Domain: d, t: t, server: server.New(server.Options{Store: kept}), folder: t.TempDir(), daemons: map[string]*daemon{}}
	w.web = httptest.NewServer(w.server)
	t.Cleanup(w.web.Close)
	if w.Client, err = client.New(client.Config{URL: w.web.URL}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{domain.Science, domain.Visitors} {
		n := vdn.Network{Name: name, Devices: []string{domain.Uplink}}
		for _, p := range domain.Prefixes(name) {
			n.Subnets = append(n.Subnets, vdn.Subnet{CIDR: p, Gateway: p.Addr().Next()})
		}
		if err := w.PutNetwork(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// daemon is a running daemon.
type daemon struct {
	enforcer enforce.Enforcer
	socket   string
	stop     func()
}

// start runs a node's daemon, with additional uplinks if named.
func (w *world) start(name string, gateway bool, more ...string) *daemon {
	w.t.Helper()
	n := vdn.Node{Name: name, Gateway: gateway, Means: "kernel"}
	for _, device := range append([]string{domain.Uplink}, more...) {
		n.Uplinks = append(n.Uplinks, vdn.Uplink{Device: device, Rate: 100_000_000})
	}
	d := &daemon{socket: filepath.Join(w.folder, name+".sock")}
	testkit.Do(w.t, w.Host(name).Namespace(), func() (err error) {
		d.enforcer, err = kernel.Open(kernel.Config{PinDir: "/sys/fs/bpf/" + name, Uplinks: n.Uplinks, Gateway: gateway})
		return err
	})
	l, err := net.Listen("unix", d.socket)
	if err != nil {
		w.t.Fatal(err)
	}
	self := node.New(node.Config{Node: n, Controller: w.Client, Enforcer: d.enforcer, Kept: filepath.Join(w.folder, name+".json")})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- self.Serve(ctx, l) }()
	go func() { done <- w.Host(name).Do(func() error { return self.Run(ctx) }) }()
	ended := false
	d.stop = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		if err := errors.Join(<-done, <-done, d.enforcer.Close()); err != nil {
			w.t.Error(err)
		}
	}
	w.t.Cleanup(d.stop)
	return d
}

// attach does what fairlead-cni does for a pod of the domain.
func (w *world) attach(name string) {
	w.t.Helper()
	p := w.Pods[name]
	lease, err := w.Attach(w.t.Context(), vdn.AttachmentRequest{
		Network: p.Att.Network, Node: p.Att.Node, Container: p.Att.Container, Interface: p.Att.Interface, Addresses: p.Addrs,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.Up(w.t.Context(), lease.Attachment.ID, vdn.UpReport{Device: p.Att.Device, MAC: p.Att.MAC, NetNS: p.Att.NetNS}); err != nil {
		w.t.Fatal(err)
	}
}

// ask queries a daemon whether an attachment is enforced.
func (d *daemon) ask(t *testing.T, query string) int {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", d.socket)
	}, DisableKeepAlives: true}}
	resp, err := c.Get("http://node/applied?" + query)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// status queries a daemon's Status.
func (d *daemon) status(t *testing.T) (s node.Status) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", d.socket)
	}, DisableKeepAlives: true}}
	resp, err := c.Get("http://node/status")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

// enforced waits until the daemon reports enforcement, and checks that it is effective.
func (w *world) enforced(d *daemon) {
	w.t.Helper()
	testkit.Eventually(w.t, patience, func() error {
		if status := d.ask(w.t, "attachment=a1.net0&wait=5s"); status != http.StatusOK {
			return fmt.Errorf("applied: status %d", status)
		}
		return nil
	})
	before := w.drops(d, enforce.Isolated)
	testkit.Eventually(w.t, patience, func() error { // a busy machine may need longer
		ctx, cancel := context.WithTimeout(w.t.Context(), 500*time.Millisecond)
		defer cancel()
		if c, err := w.Host("a1").Dial(ctx, netip.Addr{}, netip.AddrPortFrom(w.Pods["b1"].Addrs[0], 9)); err == nil {
			c.Close()
			w.t.Fatal("a pod reaches one of another network")
		}
		if w.drops(d, enforce.Isolated) == before {
			return errors.New("no drop is counted")
		}
		return nil
	})
}

func (w *world) drops(d *daemon, reason string) (n uint64) {
	w.t.Helper()
	all, err := d.enforcer.Counters(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, c := range all {
		n += c.Drops[reason]
	}
	return n
}

// reported waits for a node's report to the controller.
func (w *world) reported(name string, good func(vdn.NodeView) error) {
	w.t.Helper()
	testkit.Eventually(w.t, patience, func() error {
		v, _, err := w.View(w.t.Context(), 0, 0)
		if err != nil {
			return err
		}
		for _, n := range v.Nodes {
			if n.Name == name {
				return good(n)
			}
		}
		return fmt.Errorf("node %s is not known", name)
	})
}

// TestPodsAreEnforced attaches pods and queries whether they are enforced.
func TestPodsAreEnforced(t *testing.T) {
	w := newWorld(t)
	d := w.start("n1", false)
	for query, want := range map[string]int{
		"attachment=a1.net0&wait=10ms": http.StatusNotModified, "": http.StatusBadRequest, "attachment=a1.net0&wait=long": http.StatusBadRequest,
	} {
		if got := d.ask(t, query); got != want {
			t.Errorf("applied?%s: status %d, want %d", query, got, want)
		}
	}
	sink, err := throughput.Listen(w.Host("b1"), 9)
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	w.attach("a1")
	w.attach("b1")
	w.enforced(d)
	w.reported("n1", func(n vdn.NodeView) error {
		if !n.Alive || n.Applied == 0 || n.Error != "" || len(n.Counters) != 4 { // two pods, two networks
			return fmt.Errorf("%+v", n)
		}
		return nil
	})
	wrong := w.Pods["a2"]
	wrong.Att.Interface, wrong.Att.Node = "lo9", "n1" // a device that does not exist
	w.attach("a2")
	testkit.Eventually(t, patience, func() error {
		if status := d.ask(t, "attachment=a2.lo9&wait=1s"); status != http.StatusServiceUnavailable {
			return fmt.Errorf("applied of a device that is not there: status %d", status)
		}
		return nil
	})
	w.reported("n1", func(n vdn.NodeView) error {
		if !strings.Contains(n.Error, "a2.lo9") {
			return fmt.Errorf("error %q, want the attachment named", n.Error)
		}
		return nil
	})
	w.enforced(d) // the others are enforced
	d.stop()
	w.remove("n1", d)
}

// remove removes what a stopped daemon left, as cleanup does.
func (w *world) remove(name string, d *daemon) {
	w.t.Helper()
	testkit.Do(w.t, w.Host(name).Namespace(), func() error {
		return errors.Join(kernel.Clean("/sys/fs/bpf/"+name), node.RemoveRoutes())
	})
}

// TestThePlanIsKeptOnceItCanBe checks that a failed disk write is retried even without a
// new plan.
func TestThePlanIsKeptOnceItCanBe(t *testing.T) {
	w := newWorld(t)
	kept := filepath.Join(w.folder, "n1.json")
	if err := os.Mkdir(kept, 0o700); err != nil { // blocks the file's name
		t.Fatal(err)
	}
	d := w.start("n1", false)
	w.attach("a1")
	w.attach("b1")
	w.enforced(d)
	newest, _, err := w.Client.Plan(t.Context(), "n1", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.reported("n1", func(n vdn.NodeView) error {
		if n.Applied != newest.Revision {
			return fmt.Errorf("applied is %d, want %d", n.Applied, newest.Revision)
		}
		return nil
	})
	if err := os.Remove(kept); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, patience, func() error {
		text, err := os.ReadFile(kept)
		if err == nil && !strings.Contains(string(text), "a1.net0") {
			err = fmt.Errorf("kept: %s", text)
		}
		return err
	})
	d.stop()
	w.remove("n1", d)
}

// TestTheControllerIsAway restarts a daemon without the controller, with and without its
// state in the kernel.
func TestTheControllerIsAway(t *testing.T) {
	w := newWorld(t)
	d := w.start("n1", false)
	sink, err := throughput.Listen(w.Host("b1"), 9)
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	w.attach("a1")
	w.attach("b1")
	w.enforced(d)
	if s := d.status(t); !s.Reachable || s.Cached || s.Unreachable != "" || s.Plan == 0 || s.Applied != s.Plan || s.Attachments != 2 || len(s.Controllers) != 1 {
		t.Errorf("with a controller: %+v", s)
	}
	if err := w.web.Config.Close(); err != nil { // immediately, without waiting for open requests
		t.Fatal(err)
	}
	testkit.Eventually(t, patience, func() error {
		const cause = "connection refused"
		s := d.status(t)
		if s.Reachable || s.Cached || !strings.Contains(s.Unreachable, "cannot reach the VDN controller at "+w.web.URL) || !strings.Contains(s.Unreachable, cause) || s.Controllers[0].Reachable {
			return fmt.Errorf("without a controller: %+v", s)
		}
		return nil
	})
	d.stop()
	d = w.start("n1", false)
	w.enforced(d)
	testkit.Eventually(t, patience, func() error {
		if s := d.status(t); s.Reachable || !s.Cached || s.Applied == 0 || s.Since.IsZero() {
			return fmt.Errorf("started without a controller: %+v", s)
		}
		return nil
	})
	d.stop()
	w.remove("n1", d)
	d = w.start("n1", false)
	w.enforced(d)
	d.stop()
	w.remove("n1", d)
}

// TestGateway checks that a gateway has routes to another domain's networks while they are
// offered.
func TestGateway(t *testing.T) {
	w := newWorld(t)
	d := w.start("gateway", true, domain.Wide)
	peer := vdn.Peer{Domain: "there.example", URL: "https://there.example:7474", NextHops: []netip.Addr{domain.OutsideAddrs[0]}}
	if err := w.PutPeer(t.Context(), peer); err != nil {
		t.Fatal(err)
	}
	offer := []vdn.PeerView{{Peer: peer, Connected: true, Networks: []vdn.SharedNetwork{
		{Name: "far", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24")}},
	}}}
	if err := w.server.SetOffers(t.Context(), offer); err != nil {
		t.Fatal(err)
	}
	routes := func() (all []string) {
		held, err := w.Host("gateway").Netlink().RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: node.Protocol}, netlink.RT_FILTER_PROTOCOL)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range held {
			all = append(all, fmt.Sprintf("%s via %s", r.Dst, r.Gw))
		}
		return all
	}
	want := func(text string) {
		t.Helper()
		testkit.Eventually(t, patience, func() error {
			if got := strings.Join(routes(), ", "); got != text {
				return fmt.Errorf("routes: %q, want %q", got, text)
			}
			return nil
		})
	}
	want("10.9.0.0/24 via 203.0.113.9")
	testkit.Do(t, w.Host("gateway").Namespace(), func() error {
		if on := sysctl.Read("ipv4/ip_forward"); on != "1" {
			return fmt.Errorf("forwarding is %s", on)
		}
		return nil
	})
	// A route that is deleted externally is restored.
	gone := w.Host("gateway").Netlink()
	held, err := gone.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Protocol: node.Protocol}, netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		t.Fatal(err)
	}
	if err := gone.RouteDel(&held[0]); err != nil {
		t.Fatal(err)
	}
	want("10.9.0.0/24 via 203.0.113.9")
	offer[0].Networks = nil
	if err := w.server.SetOffers(t.Context(), offer); err != nil {
		t.Fatal(err)
	}
	want("")
	d.stop()
	w.remove("gateway", d)
}

// TestAnUplinkComes names an uplink that does not exist yet.
func TestAnUplinkComes(t *testing.T) {
	w := newWorld(t)
	d := w.start("n1", false, "late0")
	w.reported("n1", func(n vdn.NodeView) error {
		if !strings.Contains(n.Error, "uplink late0") {
			return fmt.Errorf("error %q, want the uplink named", n.Error)
		}
		return nil
	})
	h := w.Host("n1")
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "late0"
	if err := h.Netlink().LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "late1"}); err != nil {
		t.Fatal(err)
	}
	w.reported("n1", func(n vdn.NodeView) error {
		if n.Error != "" || len(counted(n, "late0")) != 2 {
			return fmt.Errorf("error %q, counters %+v", n.Error, n.Counters)
		}
		return nil
	})
	d.stop()
	w.remove("n1", d)
	requireNothing(t, h)
}

func counted(n vdn.NodeView, device string) (all []vdn.Counter) {
	for _, c := range n.Counters {
		if c.Device == device {
			all = append(all, c)
		}
	}
	return all
}

// requireNothing checks that a host has none of our queues.
func requireNothing(t *testing.T, h *lab.Host) {
	t.Helper()
	testkit.Do(t, h.Namespace(), func() error {
		link, err := netlink.LinkByName(domain.Uplink)
		if err != nil {
			return err
		}
		all, err := netlink.QdiscList(link)
		for _, q := range all {
			if q.Type() == "htb" || q.Type() == "bfifo" {
				t.Errorf("left over: %s", q.Attrs())
			}
		}
		return err
	})
}
