package nobgp_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/testkit"
)

// modes returns announcements of two Services, one by BGP and one on the segment.
func modes(byBGP, onSegment string) string {
	one := func(name, mode, service string) string {
		return fmt.Sprintf(`apiVersion: fairlead.io/v1alpha1
kind: Advertisement
metadata: {name: %s}
spec: {mode: %s, serviceSelector: {matchLabels: {app: %s}}}
`, name, mode, service)
	}
	return one("routed", "BGP", byBGP) + "---\n" + one("segment", "Layer2", onSegment)
}

// between is a flat network with a BGP router on it; one load balancer does both.
//
//	client 10.0.0.9 ──┐         ┌── lb1 10.0.0.1
//	                  ├─ switch ┤
//	router 10.0.0.254 ┘         └── web1 10.0.0.21
type between struct {
	*flat
	vips map[string]netip.Addr
}

func newBetween(t *testing.T) *between {
	f := newFlat(t)
	b := &between{flat: f, vips: map[string]netip.Addr{}}
	part := lab.Topology{
		Hosts: []lab.HostSpec{{Name: "router", Forward: true}},
		Links: []lab.Link{{A: lab.At("router", "eth0", "10.0.0.254/24").ForXDP(), B: lab.Port("switch").ForXDP()}},
	}
	if err := f.lab.Add(t.Context(), part); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for i, name := range []string{"north", "south"} {
		b.vips[name] = netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", 200+i))
		fmt.Fprintf(&text, `---
apiVersion: v1
kind: Service
metadata:
  name: %[1]s
  labels: {app: %[1]s}
  annotations: {fairlead.io/addresses: %[2]s, fairlead.io/health-check: none}
spec: {type: LoadBalancer, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{port: 80}]
endpoints: [{addresses: [10.0.0.21]}]
`, name, b.vips[name])
	}
	b.put("web.yaml", text.String())
	return b
}

// put writes a manifest atomically.
func (b *between) put(file, text string) {
	b.t.Helper()
	next := filepath.Join(b.dir, ".next")
	if err := os.WriteFile(next, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(b.dir, file)); err != nil {
		b.t.Fatal(err)
	}
}

// route runs our router, to which load balancers connect.
func (b *between) route() {
	b.t.Helper()
	log, err := os.Create(filepath.Join(b.dir, "router.log"))
	if err != nil {
		b.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(fixture.Binary, "router", "--router-id", "10.0.0.254", "--listen-range", "10.0.0.0/24", "--socket", filepath.Join(b.dir, "router.sock"))
	cmd.Stdout, cmd.Stderr = log, log
	if _, err := b.lab.Host("router").Start(cmd); err != nil {
		b.t.Fatal(err)
	}
}

// routed reports whether the router has a route to a VIP through the load balancer.
func (b *between) routed(vip netip.Addr) (bool, error) {
	routes, err := b.lab.Host("router").Routes(netip.PrefixFrom(vip, 32))
	return len(routes) == 1 && strings.HasSuffix(routes[0], ": 10.0.0.1"), err
}

// answered resolves a VIP on the segment again, by ARP, and reports whether anybody
// answers.
func (b *between) answered(vip netip.Addr) (bool, error) {
	client := b.lab.Host("client")
	eth, err := client.Netlink().LinkByName("eth0")
	if err != nil {
		return false, err
	}
	state := func() (int, error) {
		entries, err := client.Netlink().NeighList(eth.Attrs().Index, unix.AF_INET)
		for _, e := range entries {
			if a, _ := netip.AddrFromSlice(e.IP); a.Unmap() == vip {
				return e.State, err
			}
		}
		return unix.NUD_NONE, err
	}
	forget := exec.Command("ip", "neigh", "flush", "dev", "eth0", "to", vip.String())
	p, err := client.Start(forget)
	if err != nil {
		return false, err
	}
	<-p.Done()
	conn, err := client.ListenPacket("udp", ":0")
	if err != nil {
		return false, err
	}
	defer conn.Close()
	for range 100 {
		_, _ = conn.WriteTo([]byte("?"), net.UDPAddrFromAddrPort(netip.AddrPortFrom(vip, 9)))
		time.Sleep(100 * time.Millisecond)
		switch s, err := state(); {
		case err != nil:
			return false, err
		case s == unix.NUD_REACHABLE:
			return true, nil
		case s == unix.NUD_FAILED:
			return false, nil
		}
	}
	return false, fmt.Errorf("the client neither finds %s nor gives up", vip)
}

// TestModes has one running agent advertise one Service by BGP and another on the
// segment, and then the reverse, as its manifest says: each is advertised only in its own
// way.
func TestModes(t *testing.T) {
	b := newBetween(t)
	b.route()
	b.put("advertisements.yaml", modes("north", "south"))
	b.start("lb1", "--interface", "eth0", "--l2-interfaces", "eth0", "--l2-members", "10.0.0.1", "--peer", "10.0.0.254")
	for _, c := range []struct{ byBGP, onSegment string }{{"north", "south"}, {"south", "north"}, {"north", "south"}} {
		b.put("advertisements.yaml", modes(c.byBGP, c.onSegment))
		for name, vip := range b.vips {
			testkit.Eventually(t, fixture.Within, func() error {
				routed, err := b.routed(vip)
				if err != nil {
					return err
				}
				answered, err := b.answered(vip)
				if err == nil && (routed != (name == c.byBGP) || answered != (name == c.onSegment)) {
					err = fmt.Errorf("%s is routed: %v, answered by ARP: %v; want only BGP for %s, only layer 2 for %s", name, routed, answered, c.byBGP, c.onSegment)
				}
				return err
			})
		}
		for from, name := range map[string]string{"router": c.byBGP, "client": c.onSegment} {
			testkit.Eventually(t, fixture.Within, func() error {
				_, err := fixture.AskHTTP(t.Context(), b.lab.Host(from), netip.AddrPortFrom(b.vips[name], 80))
				return err
			})
		}
	}
}
