package gather_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/agent/doctor"
	"github.com/fairlead/fairlead/agent/doctor/gather"
	"github.com/fairlead/fairlead/internal/ethtool"
	"github.com/fairlead/fairlead/internal/privilege"
	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit"
)

// These variables turn the test binary into another program: one that examines the
// namespace in which it is started, or one that waits under another name.
const (
	examineVariable = "FAIRLEAD_TEST_EXAMINE" // doctor.Options, as JSON
	nobodyVariable  = "FAIRLEAD_TEST_NOBODY"  // if not empty: examine as another user
	nameVariable    = "FAIRLEAD_TEST_NAME"    // name of a process that waits
)

// init runs on the first thread, whose name is that of the process.
func init() {
	if name := os.Getenv(nameVariable); name != "" {
		b := append([]byte(name), 0)
		if err := unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&b[0])), 0, 0, 0); err != nil {
			panic(err)
		}
		fmt.Println("ready")
		select {}
	}
}

func TestMain(m *testing.M) {
	if text := os.Getenv(examineVariable); text != "" {
		if err := examineHere(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testkit.Main(m)
}

// examineHere is the main function of the child.
func examineHere(text string) error {
	if os.Getenv(nobodyVariable) != "" {
		if err := syscall.Setuid(65534); err != nil {
			return err
		}
	}
	var o doctor.Options
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	// A busy machine may need longer than a user waits.
	facts, o := gather.CollectWithin(context.Background(), o, 10*gather.Limit)
	return json.NewEncoder(os.Stdout).Encode(doctor.Examine(facts, o))
}

// world is a network namespace with one interface, like that of a load balancer.
type world struct {
	*testing.T
	ns *netns.NS
	// o is what the child examines, env its environment, and without the capabilities
	// that it lacks.
	o       doctor.Options
	env     []string
	without []privilege.Capability
}

// healthy returns a world without faults.
func healthy(t *testing.T) *world {
	w := &world{T: t, ns: testkit.NetNS(t), o: doctor.Options{DataPlane: "auto", BPFFS: "/sys/fs/bpf", Socket: t.TempDir() + "/none.sock"}}
	w.do(func() error {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0", MTU: 1700}, PeerName: "far0", PeerMTU: 1700}
		w.must(netlink.LinkAdd(veth))
		w.must(gro("far0"))
		w.up("far0")
		w.up("eth0")
		w.address("eth0", "10.0.0.1/24")
		w.must(netlink.RouteAdd(&netlink.Route{LinkIndex: w.link("eth0").Attrs().Index, Gw: []byte{10, 0, 0, 254}}))
		return nil
	})
	for name, value := range map[string]string{
		"net.ipv4.conf.all.rp_filter": "0", "net.ipv4.conf.eth0.rp_filter": "2",
		"net.ipv4.ip_forward": "1", "net.ipv6.conf.all.forwarding": "1",
		"net.ipv4.fib_multipath_hash_policy": "3", "net.ipv6.fib_multipath_hash_policy": "3",
		"net.ipv4.fib_multipath_hash_fields": "55", "net.ipv6.fib_multipath_hash_fields": "55",
	} {
		w.sysctl(name, value)
	}
	return w
}

func (w *world) do(f func() error) {
	w.Helper()
	testkit.Do(w, w.ns, f)
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) sysctl(name, value string) {
	w.Helper()
	w.do(func() error { return netns.WriteSysctl(name, value) })
}

// link, up and address must be called within do.
func (w *world) link(name string) netlink.Link {
	w.Helper()
	l, err := netlink.LinkByName(name)
	w.must(err)
	return l
}

func (w *world) up(name string) {
	w.Helper()
	w.must(netlink.LinkSetUp(w.link(name)))
}

func (w *world) address(name, prefix string) {
	w.Helper()
	a, err := netlink.ParseAddr(prefix)
	w.must(err)
	w.must(netlink.AddrAdd(w.link(name), a))
}

// gro enables generic receive offload (ethtool -K NAME gro on).
func gro(name string) error {
	return ethtool.Call(name, &ethtool.Value{Command: unix.ETHTOOL_SGRO, Data: 1})
}

// examine runs the child in the namespace.
func (w *world) examine() (r doctor.Report) {
	w.Helper()
	text, err := json.Marshal(w.o)
	w.must(err)
	var stdout, stderr bytes.Buffer
	w.do(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "/proc/self/exe")
		cmd.Env = append(append(os.Environ(), examineVariable+"="+string(text)), w.env...)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		may := privilege.All
		for _, c := range w.without {
			may &^= 1 << c
		}
		testkit.Limit(cmd, may)
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%w: %s", err, &stderr)
		}
		return nil
	})
	w.must(json.Unmarshal(stdout.Bytes(), &r))
	return r
}

// process starts a process with a name, until the test ends.
func (w *world) process(name string) {
	w.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), nameVariable+"="+name)
	out, err := cmd.StdoutPipe()
	w.must(err)
	w.must(cmd.Start())
	w.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	buffer := make([]byte, 16)
	if n, err := out.Read(buffer); err != nil || !strings.HasPrefix(string(buffer[:n]), "ready") {
		w.Fatalf("%s said %q: %v", name, buffer[:n], err)
	}
}

// settings gives the child a tree of sysctls in place of /proc/sys/net, because a test
// must not change global settings of the machine.
func (w *world) settings(values map[string]string) string {
	w.Helper()
	root := w.TempDir()
	for path, value := range values {
		file := root + "/" + path
		w.must(os.MkdirAll(file[:strings.LastIndex(file, "/")], 0o755))
		w.must(os.WriteFile(file, []byte(value+"\n"), 0o644))
	}
	w.env = append(w.env, "FAIRLEAD_PROC_SYS_NET="+root)
	return root
}

// mount mounts a file system on a temporary directory.
func (w *world) mount(kind string, flags uintptr) string {
	w.Helper()
	dir := w.TempDir()
	w.must(unix.Mount(kind, dir, kind, 0, ""))
	w.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			w.Error(err)
		}
	})
	if flags != 0 {
		w.must(unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|flags, ""))
	}
	return dir
}
