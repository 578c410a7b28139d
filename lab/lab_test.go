package lab_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/testkit"
)

// helper in the environment makes this test binary a program with a lab.
const helper = "LAB_TEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helper) != "" {
		os.Exit(runHelper())
	}
	testkit.Main(m)
}

// long is far more than any step here takes.
const long = 30 * time.Second

// smallNetwork is the network of most tests:
//
//	outside ─ router ═ lan ═ a, b ; b ─ pod (cuttable)
func smallNetwork() lab.Topology {
	return lab.Topology{
		Title: "a small network",
		Hosts: []lab.HostSpec{
			{Name: "outside", Is: "client"},
			{Name: "router", Is: "router", Forward: true},
			{Name: "a", Is: "host"},
			{
				Name: "b", Is: "node", Forward: true,
				SNAT: []lab.SNAT{
					{From: "172.16.0.0/16", Spare: []string{"172.16.0.0/16", "10.0.0.0/16"}},
					{From: "fd16::/16", Spare: []string{"fd16::/16", "fd10::/16"}},
				},
			},
			{Name: "pod", Is: "pod"},
		},
		Switches: []lab.SwitchSpec{{Name: "lan", Is: "node network"}},
		Links: []lab.Link{
			{
				A: lab.At("outside", "eth0", "192.168.0.2/24", "fd92::2/64").Via("192.168.0.1", "10.0.0.0/16").Via("fd92::1", "fd10::/16"),
				B: lab.At("router", "eth0", "192.168.0.1/24", "fd92::1/64"),
			},
			{
				A: lab.At("router", "eth1", "10.0.0.1/16", "fd10::1/64"), MTU: 1600,
				B: lab.Port("lan"),
			},
			{
				A: lab.At("a", "eth0", "10.0.0.2/16", "fd10::2/64").Via("10.0.0.1", "default").Via("fd10::1", "default").
					Via("10.0.0.3", "172.16.0.0/16").Via("fd10::3", "fd16::/16"), MTU: 1600,
				B: lab.Port("lan"),
			},
			{
				A: lab.At("b", "eth0", "10.0.0.3/16", "fd10::3/64").Via("10.0.0.1", "default").Via("fd10::1", "default"), MTU: 1600,
				B: lab.Port("lan").ForXDP(),
			},
			{
				A: lab.At("b", "pod0", "172.16.1.1/32", "fd16::1/128").To("172.16.1.9/32").To("fd16::9/128").ForXDP(), MTU: 1600, Cuttable: true,
				B: lab.At("pod", "eth0", "172.16.1.9/32", "fd16::9/128").To("172.16.1.1/32").To("fd16::1/128").
					Via("172.16.1.1", "default").Via("fd16::1", "default"),
			},
		},
	}
}

func build(t *testing.T, topology lab.Topology) *lab.Lab {
	t.Helper()
	l, err := lab.Build(t.Context(), topology)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		testkit.NoLeftovers(t)
	})
	return l
}

// whoami serves, on a host, each client's own address.
func whoami(t *testing.T, h *lab.Host, address string) {
	t.Helper()
	ln, err := h.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap().String())
			c.Close()
		}
	}()
}

// ask returns the address that a whoami server sees for the host.
func ask(h *lab.Host, remote string, patience time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := h.Dial(ctx, netip.Addr{}, netip.MustParseAddrPort(remote))
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	b, err := io.ReadAll(c)
	return string(b), err
}

func TestEveryPathOfTheDrawing(t *testing.T) {
	l := build(t, smallNetwork())
	for _, h := range []string{"outside", "a", "b", "pod"} {
		whoami(t, l.Host(h), ":80")
	}
	for _, test := range []struct{ from, to, seenAs string }{
		{"outside", "10.0.0.2:80", "192.168.0.2"},
		{"outside", "10.0.0.3:80", "192.168.0.2"},
		{"a", "192.168.0.2:80", "10.0.0.2"},
		{"a", "172.16.1.9:80", "10.0.0.2"},
		{"a", "[fd16::9]:80", "fd10::2"},
		{"b", "172.16.1.9:80", "172.16.1.1"},
		{"b", "[fd16::9]:80", "fd16::1"},
		{"pod", "10.0.0.2:80", "172.16.1.9"}, // spared
		{"pod", "[fd10::2]:80", "fd16::9"},
		{"pod", "192.168.0.2:80", "10.0.0.3"}, // masqueraded
		{"pod", "[fd92::2]:80", "fd10::3"},
	} {
		got, err := ask(l.Host(test.from), test.to, long)
		if err != nil || got != test.seenAs {
			t.Errorf("%s to %s is seen as %q (%v), want %q", test.from, test.to, got, err, test.seenAs)
		}
	}
	if _, err := ask(l.Host("outside"), "172.16.1.9:80", long); !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("outside has a way into the overlay: %v", err)
	}
}

func TestDialHonoursDeadlineAndSource(t *testing.T) {
	l := build(t, smallNetwork())
	a := l.Host("a")
	start := time.Now()
	if _, err := ask(a, "10.0.7.7:80", 200*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, unix.EHOSTUNREACH) {
		t.Errorf("dialling nobody gives %v after %v", err, time.Since(start))
	}
	if _, err := ask(a, "10.0.0.3:81", long); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("dialling a closed port gives %v", err)
	}
	whoami(t, l.Host("b"), ":80")
	c, err := a.Dial(t.Context(), netip.MustParseAddr("fd10::2"), netip.MustParseAddrPort("[fd10::3]:80"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := c.LocalAddr().(*net.TCPAddr).IP.String(); got != "fd10::2" {
		t.Errorf("local address is %s", got)
	}
}

func TestCutIsSilentAndRestorable(t *testing.T) {
	l := build(t, smallNetwork())
	whoami(t, l.Host("pod"), ":80")
	whoami(t, l.Host("a"), ":80")
	for _, test := range []struct{ host, dev, from, to string }{
		{"pod", "eth0", "a", "172.16.1.9:80"},   // in the patch panel
		{"b", "pod0", "a", "172.16.1.9:80"},     // the same, by its other end
		{"a", "eth0", "outside", "10.0.0.2:80"}, // at the switch
	} {
		t.Run(test.host+test.dev, func(t *testing.T) {
			if _, err := ask(l.Host(test.from), test.to, long); err != nil {
				t.Fatal(err)
			}
			if err := l.Cut(test.host, test.dev); err != nil {
				t.Fatal(err)
			}
			if got, err := ask(l.Host(test.from), test.to, 500*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("over a cut link: %q, %v", got, err)
			}
			for _, end := range [][2]string{{test.host, test.dev}, {"pod", "eth0"}, {"b", "pod0"}, {"a", "eth0"}} {
				if state := operState(t, l.Host(end[0]), end[1]); state != "up" {
					t.Errorf("%s %s is %s: the cut is not silent", end[0], end[1], state)
				}
			}
			if err := l.Restore(test.host, test.dev); err != nil {
				t.Fatal(err)
			}
			if _, err := ask(l.Host(test.from), test.to, long); err != nil {
				t.Errorf("after Restore: %v", err)
			}
		})
	}
	if err := l.Cut("outside", "eth0"); err == nil || !strings.Contains(err.Error(), "Cuttable") {
		t.Errorf("cutting a plain link gives %v", err)
	}
}

func operState(t *testing.T, h *lab.Host, dev string) string {
	t.Helper()
	link, err := h.Netlink().LinkByName(dev)
	if err != nil {
		t.Fatal(err)
	}
	return link.Attrs().OperState.String()
}

func TestAddAndRemoveWhileItRuns(t *testing.T) {
	l := build(t, smallNetwork())
	part := lab.Topology{
		Hosts: []lab.HostSpec{{Name: "late"}},
		Links: []lab.Link{{
			A: lab.At("b", "late0", "172.16.1.1/32").To("172.16.1.20/32").Via("172.16.1.20", "10.1.1.0/24"), Cuttable: true,
			B: lab.At("late", "eth0", "172.16.1.20/32").To("172.16.1.1/32").Via("172.16.1.1", "default"),
		}},
	}
	for range 3 {
		if err := l.Add(t.Context(), part); err != nil {
			t.Fatal(err)
		}
		whoami(t, l.Host("late"), ":80")
		p, err := l.Host("late").Start(exec.Command("/bin/sleep", "3600"))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ask(l.Host("a"), "172.16.1.20:80", long); got != "10.0.0.2" {
			t.Fatalf("a is seen as %q (%v)", got, err)
		}
		if err := l.Remove("late", "never-there"); err != nil {
			t.Fatal(err)
		}
		if err := p.Wait(); err == nil {
			t.Error("the process of the host exited with 0, want killed")
		}
		if _, err := ask(l.Host("b"), "172.16.1.20:80", 300*time.Millisecond); err == nil {
			t.Error("the removed host still answers")
		}
	}
}

func TestAFailedAddLeavesNothing(t *testing.T) {
	l := build(t, smallNetwork())
	before := l.Topology().String()
	part := lab.Topology{
		Hosts:    []lab.HostSpec{{Name: "late", Sysctls: map[string]string{"net.ipv4.no_such_thing": "1"}}},
		Switches: []lab.SwitchSpec{{Name: "late-lan"}},
		Links: []lab.Link{
			{A: lab.At("b", "late0"), B: lab.At("late", "eth0"), Cuttable: true},
			{A: lab.At("late", "eth1"), B: lab.Port("late-lan")},
		},
	}
	if err := l.Add(t.Context(), part); err == nil || !strings.Contains(err.Error(), "no_such_thing") {
		t.Fatalf("Add gives %v", err)
	}
	if after := l.Topology().String(); after != before {
		t.Errorf("the topology became\n%s", after)
	}
	if _, err := l.Host("b").Netlink().LinkByName("late0"); err == nil {
		t.Error("the node's end of the link remains")
	}
	part.Hosts[0].Sysctls = nil
	if err := l.Add(t.Context(), part); err != nil {
		t.Errorf("restored: %v", err)
	}
}

func TestBuildRefusesByName(t *testing.T) {
	for want, topology := range map[string]lab.Topology{
		`host "a": the name is empty or taken`: {Hosts: []lab.HostSpec{{Name: "a"}, {Name: "a"}}},
		`no host or switch is named "b"`:       {Hosts: []lab.HostSpec{{Name: "a"}}, Links: []lab.Link{{A: lab.At("a", "x"), B: lab.At("b", "y")}}},
		`end a x: netip.ParsePrefix("10.0.0.1")`: {Hosts: []lab.HostSpec{{Name: "a"}, {Name: "b"}},
			Links: []lab.Link{{A: lab.At("a", "x", "10.0.0.1"), B: lab.At("b", "y")}}},
		`end a x: route to 10.0.0.1/8: bits are set right of the prefix, want 10.0.0.0/8`: {Hosts: []lab.HostSpec{{Name: "a"}, {Name: "b"}},
			Links: []lab.Link{{A: lab.At("a", "x").To("10.0.0.1/8"), B: lab.At("b", "y")}}},
		`two switches cannot be linked`: {Switches: []lab.SwitchSpec{{Name: "s"}, {Name: "u"}}, Links: []lab.Link{{A: lab.Port("s"), B: lab.Port("u")}}},
	} {
		if _, err := lab.Build(t.Context(), topology); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
	testkit.NoLeftovers(t)
}

func TestBuildInterruptedLeavesNothing(t *testing.T) {
	for i := range 15 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*2*time.Millisecond)
		l, err := lab.Build(ctx, smallNetwork())
		cancel()
		if err == nil {
			err = l.Close()
		} else if errors.Is(err, context.DeadlineExceeded) {
			err = nil
		}
		if err != nil {
			t.Errorf("interrupted after %d ms: %v", i*2, err)
		}
		testkit.NoLeftovers(t)
	}
}

func TestProcesses(t *testing.T) {
	l := build(t, smallNetwork())
	// run starts a script and waits until it prints "ready".
	run := func(script string) *lab.Process {
		t.Helper()
		cmd := exec.Command("/bin/sh", "-c", script)
		r, w := io.Pipe()
		cmd.Stdout = w
		p, err := l.Host("a").Start(cmd)
		if err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(r).ReadString('\n'); line != "ready\n" {
			t.Fatalf("the script prints %q (%v)", line, err)
		}
		go io.Copy(io.Discard, r)
		return p
	}
	var out strings.Builder
	cmd := exec.Command("/bin/cat", "/proc/net/fib_trie")
	cmd.Stdout = &out
	p, err := l.Host("a").Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil || !strings.Contains(out.String(), "10.0.0.2") {
		t.Errorf("a process of a does not see a's addresses (%v): %s", err, out.String())
	}
	if err := run("trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done").Stop(long); err != nil {
		t.Errorf("Stop of a process that handles SIGTERM: %v", err)
	}
	if err := run("trap '' TERM; echo ready; while :; do sleep 0.05; done").Stop(200 * time.Millisecond); err == nil {
		t.Error("Stop of a process that ignores SIGTERM gives nil, want killed")
	}
	run("sleep 3600 & echo ready; sleep 3600") // its child must end with the lab too
}

func TestNamespacesAreNamed(t *testing.T) {
	build(t, smallNetwork())
	entries, err := os.ReadDir("/run/netns")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if got, want := strings.Join(names, " "), "a b lan outside patch-panel pod router"; got != want {
		t.Errorf("namespaces are %s, want %s", got, want)
	}
}
