package interop

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/netlist"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/sandbox"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testkit/actor"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) {
	actor.Play(play)
	testkit.Main(m)
}

func example() Config {
	return Config{AS: 65021, RouterID: netip.MustParseAddr("10.0.0.110"), LocalAddress: netip.MustParseAddr("10.0.0.110"), BFD: true,
		Peers: []Peer{{Address: netip.MustParseAddr("10.0.0.109"), Password: "secret"}, {Address: netip.MustParseAddr("10.0.0.108"), Port: 1179}}}
}

func TestConfigurationFiles(t *testing.T) {
	c := example()
	if err := c.validate(); err != nil {
		t.Fatal(err)
	}
	_, frr, _ := c.frr("/dir")
	_, bird, _ := c.bird("/dir")
	for name, text := range map[string]string{"bgpd.conf": frr["bgpd.conf"], "bfdd.conf": frr["bfdd.conf"], "bird.conf": bird["bird.conf"]} {
		golden := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if text != string(want) {
			t.Errorf("%s differs from %s; run the test with -update if this is intended:\n%s", name, golden, text)
		}
	}
}

func TestRefusals(t *testing.T) {
	ns := testkit.NetNS(t)
	spoilt := example()
	spoilt.Peers[0].Password = "two words"
	for _, c := range []struct {
		kind   Kind
		config Config
		want   string
	}{
		{FRR, spoilt, "peers[0].password"},
		{BIRD, Config{RouterID: example().RouterID}, "peers: none given"},
		{BIRD, Config{Peers: example().Peers}, "routerID"},
		{GoBGP, example(), "text: required"},
		{"quagga", example(), `router "quagga" is not known`},
	} {
		d, err := Start(ns, c.kind, c.config)
		if err == nil {
			d.Stop()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.kind, err, c.want)
		}
	}
	if _, err := find(program{paths: []string{"/nowhere/bgpd"}}); err == nil || !strings.Contains(err.Error(), "/nowhere/bgpd") {
		t.Errorf("missing daemon: %v", err)
	}
}

// kernelRoutes formats a namespace's routes to service prefixes, sorted.
func kernelRoutes(h *netlink.Handle) string {
	var lines []string
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		rs, err := netlist.Whole(func() ([]netlink.Route, error) {
			return h.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			return err.Error()
		}
		for _, r := range rs {
			if r.Dst == nil || !strings.HasPrefix(r.Dst.String(), "10.1.") && !strings.HasPrefix(r.Dst.String(), "fd00:1:") {
				continue
			}
			var hops []string
			if r.Gw != nil {
				hops = append(hops, r.Gw.String())
			}
			for _, p := range r.MultiPath {
				hops = append(hops, p.Gw.String())
			}
			slices.Sort(hops)
			lines = append(lines, fmt.Sprintf("%s metric %d via %s", r.Dst, r.Priority, strings.Join(hops, " ")))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "; ")
}

// FRR and BIRD routers get the same routes from our reflector:
//
//	reflector 10.0.0.109, speakers 172.16.0.105, .106 ── router 10.0.0.110
func TestAsRouter(t *testing.T) {
	for kind, paths := range map[Kind]string{FRR: "/usr/lib/frr/bgpd", BIRD: "/usr/sbin/bird"} {
		t.Run(string(kind), func(t *testing.T) {
			if _, err := os.Stat(paths); err != nil {
				t.Skipf("%s is not installed", kind)
			}
			l, err := lab.Build(context.Background(), lab.Topology{
				Hosts: []lab.HostSpec{{Name: "router"}, {Name: "reflector", Loopback: []string{"172.16.0.105/32", "172.16.0.106/32"}}},
				Links: []lab.Link{{Cuttable: true,
					A: lab.At("router", "eth0", "10.0.0.110/16", "fd00::110/64"), B: lab.At("reflector", "eth0", "10.0.0.109/16", "fd00::109/64")}},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}()
			speakers := enact(t, l.Host("reflector"), part{Nodes: "105,106"})
			c := example()
			c.Peers = c.Peers[:1]
			start := time.Now()
			d, err := Start(l.Host("router").Namespace(), kind, c)
			if err != nil {
				t.Fatal(err)
			}
			stopped := false
			defer func() {
				if !stopped {
					d.Stop()
				}
			}()
			t.Logf("takes commands after %s", time.Since(start))
			wait := func(what, want string) {
				t.Helper()
				start := time.Now()
				for kernelRoutes(l.Host("router").Netlink()) != want {
					if time.Since(start) > time.Minute {
						t.Fatalf("%s: kernel has %q, want %q\n%s", what, kernelRoutes(l.Host("router").Netlink()), want, d.Log())
					}
					time.Sleep(time.Millisecond)
				}
				t.Logf("%s after %s", what, time.Since(start))
			}
			// BIRD gives IPv6 routes the configured metric, FRR its 20.
			wait("both balancers", "10.1.1.0/24 metric 20 via 10.0.0.105 10.0.0.106; fd00:1:1::/64 metric 20 via fd00::105 fd00::106")
			speakers.Send(order{Last: "withdraw"})
			wait("one withdrew", "10.1.1.0/24 metric 20 via 10.0.0.105; fd00:1:1::/64 metric 20 via fd00::105")
			testkit.Eventually(t, time.Minute, func() error {
				for _, p := range speakers.Query().Peers {
					if p.Address == "10.0.0.110" && p.State == "established" && p.BFD == "up" {
						return nil
					}
				}
				return errors.New("session and BFD with the router are not up")
			})
			if err := l.Cut("router", "eth0"); err != nil {
				t.Fatal(err)
			}
			wait("link cut", "")
			if err := d.Stop(); err != nil {
				t.Error(err)
			}
			stopped = true
			if got := kernelRoutes(l.Host("router").Netlink()); got != "" {
				t.Errorf("routes left in the kernel: %s", got)
			}
			l.Close()
			for _, left := range sandbox.Leftovers() {
				if strings.Contains(left, "frr") || strings.Contains(left, "bird") {
					t.Errorf("left behind: %s", left)
				}
			}
		})
	}
}
