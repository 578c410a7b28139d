package uml_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/netlist"
	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/uml"
)

// helper is the environment variable that makes this test binary a program
// which the tests run inside a guest, or kill outside of one.
const helper = "GUEST_TEST_HELPER"

func TestMain(m *testing.M) {
	switch os.Getenv(helper) {
	case "world":
		if err := world(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	case "killed":
		uml.Run(context.Background(), uml.Options{}, "/bin/sh", "-c", "echo up; sleep 1000") //nolint:errcheck // never returns
	}
	testkit.Main(m)
}

// sh runs a script in a guest and returns its status and output.
func sh(t *testing.T, o uml.Options, script string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	o.Stdout, o.Stderr = &out, &errs
	status, err := uml.Run(t.Context(), o, "sh", "-c", script)
	if err != nil {
		t.Fatalf("%v\n%s%s", err, &out, &errs)
	}
	testkit.NoLeftovers(t)
	return status, out.String(), errs.String()
}

func TestStatusAndOutput(t *testing.T) {
	// Bytes that a terminal would change, more than any buffer holds, and then exit
	// immediately.
	status, out, errs := sh(t, uml.Options{Dir: "/usr/bin", Env: []string{"WORD=a b", "PATH=" + os.Getenv("PATH")}},
		`id -u; pwd; echo "$WORD"; printf 'a\r\n\t\004b\n'; printf oops >&2; seq 300000; exit 37`)
	var want strings.Builder
	want.WriteString("0\n/usr/bin\na b\na\r\n\t\004b\n")
	for i := range 300000 {
		fmt.Fprintln(&want, i+1)
	}
	if status != 37 || out != want.String() || errs != "oops" {
		t.Errorf("status %d, %d bytes beginning with %.40q, errors %q", status, len(out), out, errs)
	}
	if left, err := filepath.Glob(os.TempDir() + "/guest-*"); err != nil || len(left) > 0 {
		t.Errorf("temporary files remain: %v, %v", left, err)
	}
}

// TestOneCPU checks that the guest has one CPU, and this process all of its own afterwards.
func TestOneCPU(t *testing.T) {
	runtime.LockOSThread() // CPUs are those of a thread
	defer runtime.UnlockOSThread()
	var before, guest, after unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	var read error
	o := uml.Options{OneCPU: true, Started: func(pid int) { read = unix.SchedGetaffinity(pid, &guest) }}
	if status, _, stderr := sh(t, o, "true"); status != 0 || read != nil {
		t.Fatalf("status %d, CPUs: %v: %s", status, read, stderr)
	}
	if err := unix.SchedGetaffinity(0, &after); err != nil || after != before || guest.Count() != 1 {
		t.Errorf("the guest has %d CPUs; this process %d, and %d before: %v", guest.Count(), after.Count(), before.Count(), err)
	}
}

func TestKilledCommand(t *testing.T) {
	if status, _, _ := sh(t, uml.Options{}, `kill -9 $$`); status != 128+9 {
		t.Errorf("status %d", status)
	}
}

// TestFiles checks that the guest's changes to files are visible only where they are
// allowed.
func TestFiles(t *testing.T) {
	shared, file := t.TempDir(), filepath.Join("/var/tmp", fmt.Sprintf("guest-test-%d", time.Now().UnixNano()))
	if err := errors.Join(os.WriteFile(file, []byte("mine\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(file)
	hosts, _ := os.ReadFile("/etc/hosts")
	status, out, errs := sh(t, uml.Options{Writable: []string{shared}}, fmt.Sprintf(
		`set -e; cat %[1]s; echo changed >%[1]s; cat %[1]s; rm /etc/hosts; echo new >/etc/fairlead-new; cp /etc/fairlead-new %[2]s/new
		! touch /lib/modules/*/modules.dep; rm -rf /etc`, file, shared))
	if status != 0 || out != "mine\nchanged\n" {
		t.Fatalf("status %d: %s%s", status, out, errs)
	}
	if text, err := os.ReadFile(file); string(text) != "mine\n" {
		t.Errorf("the file outside contains %q (%v)", text, err)
	}
	if text, err := os.ReadFile("/etc/hosts"); !bytes.Equal(text, hosts) {
		t.Errorf("/etc/hosts contains %q (%v)", text, err)
	}
	if _, err := os.Stat("/etc/fairlead-new"); err == nil {
		t.Error("a new file is visible outside")
	}
	if text, err := os.ReadFile(shared + "/new"); string(text) != "new\n" {
		t.Errorf("the shared folder contains %q (%v)", text, err)
	}
}

func TestLimit(t *testing.T) {
	start := time.Now()
	var out bytes.Buffer
	_, err := uml.Run(t.Context(), uml.Options{Limit: 10 * time.Second, Stdout: &out}, "sh", "-c", "setsid sleep 1000 & echo up; sleep 1000")
	if !errors.Is(err, uml.ErrLimit) || time.Since(start) < 10*time.Second {
		t.Errorf("%v after %v", err, time.Since(start))
	}
	if len(fmt.Sprint(err)) < 500 {
		t.Errorf("the kernel's words are missing: %v", err)
	}
	testkit.NoLeftovers(t)
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := &watcher{until: "up", then: cancel}
	if _, err := uml.Run(ctx, uml.Options{Stdout: w}, "sh", "-c", "echo up; sleep 1000"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	testkit.NoLeftovers(t)
}

// watcher calls a function when a word was written, which shows that output arrives as it
// is written.
type watcher struct {
	until string
	then  func()
	seen  bytes.Buffer
}

func (w *watcher) Write(p []byte) (int, error) {
	if w.seen.Write(p); strings.Contains(w.seen.String(), w.until) {
		w.then()
	}
	return len(p), nil
}

// TestKilled checks that a guest does not outlive the program that runs it.
func TestKilled(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), helper+"=killed", "TMPDIR="+t.TempDir()) // what it leaves there must not be found by other tests
	cmd.Stdout = &watcher{until: "up", then: func() { cmd.Process.Kill() }}
	if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != -1 {
		t.Errorf("ended by itself: %v", err)
	}
	testkit.NoLeftovers(t)
}

func TestCannotBoot(t *testing.T) {
	_, err := uml.Run(t.Context(), uml.Options{Memory: 4}, "true")
	if err == nil || errors.Is(err, uml.ErrLimit) {
		t.Errorf("in 4 MiB: %v", err)
	}
	_, err = uml.Run(t.Context(), uml.Options{}, "/no/such/command")
	if err == nil || !strings.Contains(err.Error(), "/no/such/command") {
		t.Errorf("no such command: %v", err)
	}
	testkit.NoLeftovers(t)
}

// TestWorlds checks that two concurrent guests each have their own network, with IPVS.
func TestWorlds(t *testing.T) {
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			var out bytes.Buffer
			o := uml.Options{Env: append(os.Environ(), helper+"=world"), Stdout: &out, Stderr: &out, Memory: 512}
			if status, err := uml.Run(t.Context(), o, "/proc/1/exe"); err != nil || status != 0 {
				t.Errorf("status %d, %v: %s", status, err, &out)
			}
		})
	}
	group.Wait()
	testkit.NoLeftovers(t)
}

// world is what runs inside: two namespaces, a veth between them, IPVS in both.
func world() error {
	a, err := netns.Create("a")
	if err != nil {
		return err
	}
	b, err := netns.Create("b")
	if err != nil {
		return err
	}
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0", Namespace: netlink.NsFd(a.FD())}, PeerName: "eth0", PeerNamespace: netlink.NsFd(b.FD())}
	if err := netlink.LinkAdd(veth); err != nil {
		return err
	}
	var listener net.Listener
	err = errors.Join(a.Do(func() error { return equip("10.0.0.1/24") }), b.Do(func() (err error) {
		if err = equip("10.0.0.2/24"); err == nil {
			listener, err = net.Listen("tcp", "10.0.0.2:80")
		}
		return err
	}))
	if err != nil {
		return err
	}
	return a.Do(func() error {
		conn, err := net.DialTimeout("tcp", listener.Addr().String(), 10*time.Second)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// equip brings eth0 up and checks for IPVS.
func equip(addr string) error {
	links, err := netlist.Whole(netlink.LinkList)
	if err != nil || len(links) != 2 {
		return fmt.Errorf("links %v (%v), want lo and eth0", links, err)
	}
	eth0, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	at, err := netlink.ParseAddr(addr)
	if err != nil {
		return err
	}
	text, err := os.ReadFile("/proc/thread-self/net/ip_vs")
	if err == nil && !strings.HasPrefix(string(text), "IP Virtual Server") {
		err = fmt.Errorf("/proc/net/ip_vs contains %q", text)
	}
	loaded, _ := os.ReadFile("/proc/modules")
	for _, scheduler := range strings.Fields("rr wrr lc wlc sh dh mh") {
		if !strings.Contains(string(loaded), "ip_vs_"+scheduler+" ") {
			err = errors.Join(err, fmt.Errorf("no scheduler %s", scheduler))
		}
	}
	return errors.Join(err, netlink.AddrAdd(eth0, at), netlink.LinkSetUp(eth0))
}
