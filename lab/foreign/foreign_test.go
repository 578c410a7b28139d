package foreign

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/announce"
	"github.com/fairlead/fairlead/announce/bgp"
	"github.com/fairlead/fairlead/internal/testkit"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/sandbox"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) {
	if os.Getenv(speakVar) != "" {
		if err := speak(os.Getenv(speakVar)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if config := os.Getenv(speakerVar); config != "" {
		if err := speakAs(config); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testkit.Main(m)
}

const speakerVar = "FAIRLEAD_FOREIGN_TEST_SPEAKER"

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
			t.Errorf("%s is not %s; run the test with -update if that is meant:\n%s", name, golden, text)
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
		t.Errorf("absent daemon: %v", err)
	}
}

const speakVar = "FAIRLEAD_FOREIGN_TEST_SPEAK"

// speak is a process that is a reflector and two speakers on addresses of one
// host, until its input ends: "105,106" announces two next hops.
func speak(nodes string) error {
	reflector := netip.MustParseAddr("10.0.0.109")
	r, err := bgp.NewReflector(bgp.ReflectorConfig{AS: 65021, RouterID: reflector, Listen: []netip.Addr{reflector}, Groups: []bgp.NeighborGroup{
		{Name: "balancers", Prefixes: []netip.Prefix{netip.MustParsePrefix("172.16.0.0/16")}},
		{Name: "router", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.110/32")}, SendMax: 16, Password: "secret", BFD: true},
	}})
	if err != nil {
		return err
	}
	defer r.Close()
	var speakers []*bgp.Speaker
	last := []announce.Route(nil)
	for _, n := range strings.Split(nodes, ",") {
		s, err := bgp.NewSpeaker(bgp.SpeakerConfig{AS: 65021, LocalAddress: netip.MustParseAddr("172.16.0." + n),
			Peers: []bgp.PeerConfig{{Address: reflector}}})
		if err != nil {
			return err
		}
		defer s.Close()
		last = []announce.Route{
			{Prefix: netip.MustParsePrefix("10.1.1.0/24"), NextHop: netip.MustParseAddr("10.0.0." + n)},
			{Prefix: netip.MustParsePrefix("fd00:1:1::/64"), NextHop: netip.MustParseAddr("fd00::" + n)}}
		if err := s.Set(last); err != nil {
			return err
		}
		speakers = append(speakers, s)
	}
	for buf := make([]byte, 1); ; {
		n, err := os.Stdin.Read(buf)
		if err != nil || n == 0 {
			return nil
		}
		switch buf[0] {
		case 'w': // the last one withdraws
			if err := speakers[len(speakers)-1].Set(nil); err != nil {
				return err
			}
		case 'a': // and announces again
			if err := speakers[len(speakers)-1].Set(last); err != nil {
				return err
			}
		case '?':
			for _, p := range r.Peers() {
				if p.Address == "10.0.0.110" {
					fmt.Println(p.State, p.BFD)
				}
			}
		}
	}
}

// startSpeaking runs speak in a host; orders go in, answers come out.
func startSpeaking(t *testing.T, h *lab.Host, nodes string) (io.Writer, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env, cmd.Stderr = append(os.Environ(), speakVar+"="+nodes), os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	cmd.Stdout = in
	if _, err := h.Start(cmd); err != nil {
		t.Fatal(err)
	}
	in.Close()
	return stdin, bufio.NewScanner(out)
}

// kernelRoutes shows a namespace's routes to service prefixes, sorted.
func kernelRoutes(h *netlink.Handle) string {
	var lines []string
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		rs, err := h.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
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

// A router of another make gets the same routes from our reflector:
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
			stdin, answers := startSpeaking(t, l.Host("reflector"), "105,106")
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
			// BIRD gives IPv6 routes the metric that is asked for, FRR its 20.
			wait("both balancers", "10.1.1.0/24 metric 20 via 10.0.0.105 10.0.0.106; fd00:1:1::/64 metric 20 via fd00::105 fd00::106")
			if _, err := stdin.Write([]byte("w")); err != nil {
				t.Fatal(err)
			}
			wait("one withdrew", "10.1.1.0/24 metric 20 via 10.0.0.105; fd00:1:1::/64 metric 20 via fd00::105")
			testkit.Eventually(t, time.Minute, func() error {
				if _, err := stdin.Write([]byte("?")); err != nil {
					return err
				}
				if answers.Scan(); answers.Text() != "established up" {
					return fmt.Errorf("session and BFD with the router: %q", answers.Text())
				}
				return nil
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
