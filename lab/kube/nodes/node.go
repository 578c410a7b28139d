package nodes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/lab/netns"
)

// Node is a machine of the cluster.
type Node struct {
	Name string
	Addr netip.Addr
	// PodCIDR is the range of its pods' addresses.
	PodCIDR string
	// Host is its network. Place starts its programs, which see the node's network, /sys,
	// /run/netns and cgroups.
	Host  *lab.Host
	Place *kube.Place
	// Cluster is the cluster of the node.
	Cluster *Cluster

	number     int
	dir        string
	cgroup     *cgroup
	namespace  string // its mount namespace, as in /proc/PID/ns/mnt
	programs   []*kube.Program
	containerd string // its socket
}

func newNode(c *Cluster, number int) (*Node, error) {
	n := &Node{
		Name: fmt.Sprintf("n%d", number), Addr: nodeAddr(number), PodCIDR: podCIDR(number), Cluster: c, number: number,
	}
	n.Host = c.lab.Host(n.Name)
	n.dir = filepath.Join(c.work, n.Name)
	n.containerd = filepath.Join(n.dir, "containerd.sock")
	if err := os.MkdirAll(n.dir, 0o755); err != nil {
		return nil, err
	}
	var err error
	n.Place, err = kube.NewPlace(n.enter)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", n.Name, err)
	}
	n.Place.Cgroup = n.cgroup.system
	return n, nil
}

// enter moves a thread into the node: its network, and file systems that hide the folders
// of which a machine has only one.
func (n *Node) enter() error {
	if err := unix.Setns(n.Host.Namespace().FD(), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the node's network: %w", err)
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare mounts: %w", err)
	}
	if err := mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	for _, dir := range []string{"/run/netns", "/run/containerd", "/run/fairlead/vdn", "/opt", "/var/lib", "/var/log"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
			return err
		}
	}
	// Shared, as systemd makes all mounts, so that containers see the namespaces of new
	// pods there.
	if err := mount("", "/run/netns", "", unix.MS_SHARED, ""); err != nil {
		return err
	}
	// sysfs shows the network devices of the namespace in which it is mounted.
	if err := mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
		return err
	}
	if err := mount("bpf", "/sys/fs/bpf", "bpf", 0, "mode=0700"); err != nil {
		return err
	}
	if err := mountCgroups(); err != nil {
		return err
	}
	if err := n.hideSysctls(); err != nil {
		return err
	}
	var err error
	if n.namespace, err = os.Readlink("/proc/thread-self/ns/mnt"); err != nil {
		return err
	}
	n.cgroup, err = makeCgroup(cgroupName(n.Name))
	return err
}

func mount(source, target, kind string, flags uintptr, data string) error {
	if err := unix.Mount(source, target, kind, flags, data); err != nil {
		return fmt.Errorf("mount %s on %s: %w", kind, target, err)
	}
	return nil
}

// hideSysctls shows kubelet the values that it requires of machine-wide settings, which
// it would otherwise change.
func (n *Node) hideSysctls() error {
	for name, value := range map[string]string{
		"vm/overcommit_memory": "1", "vm/panic_on_oom": "0",
		"kernel/panic": "10", "kernel/panic_on_oops": "1",
		"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
	} {
		path := filepath.Join(n.dir, filepath.Base(name))
		if err := os.WriteFile(path, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := mount(path, "/proc/sys/"+name, "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	return nil
}

// bridgeFlat creates the bridge of flat pods, with the device to the segment.
func (n *Node) bridgeFlat() error {
	to := n.Host.Netlink()
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "flat0"}}
	if err := to.LinkAdd(bridge); err != nil {
		return fmt.Errorf("bridge of flat pods: %w", err)
	}
	out, err := to.LinkByName("eth1")
	if err == nil {
		err = errors.Join(to.LinkSetMaster(out, bridge), to.LinkSetUp(bridge))
	}
	if err != nil {
		return err
	}
	// Otherwise the kernel would also answer ARP for eth0's address here, with the
	// bridge's own MAC address, which changes when pods are added.
	return n.Host.Do(func() error { return netns.WriteSysctl("net.ipv4.conf.flat0.arp_ignore", "1") })
}

func (n *Node) start(ctx context.Context, images []string) error {
	if err := errors.Join(n.bridgeFlat(), n.configure()); err != nil {
		return err
	}
	if err := n.Start(ctx, n.answers("version"), "containerd", "--config", n.file("containerd.toml")); err != nil {
		return err
	}
	for _, image := range images {
		if err := n.ctr(ctx, "images", "import", "--snapshotter", "overlayfs", image); err != nil {
			return err
		}
	}
	return n.Start(ctx, n.Page("http://127.0.0.1:10248/healthz"), filepath.Join(n.Cluster.Binaries, "kubelet"),
		"--config", n.file("kubelet.yaml"), "--kubeconfig", n.file("kubeconfig"), "--root-dir", n.file("kubelet"),
		"--cert-dir", n.file("pki"), "--node-ip", n.Addr.String(), "--hostname-override", n.Name)
}

// Start starts a program on the node, waits until it is ready (nil: immediately), and
// makes sure that it ends with the node. Its log is NODE-PROGRAM.log.
func (n *Node) Start(ctx context.Context, ready func(context.Context) error, argv ...string) error {
	if ready == nil {
		ready = func(context.Context) error { return nil }
	}
	p := &kube.Program{Place: n.Place, Argv: argv, Log: n.log(filepath.Base(argv[0])), Ready: ready}
	n.programs = append(n.programs, p)
	return p.Start(ctx)
}

// End stops the programs with a name that Start started.
func (n *Node) End(program string) error {
	var errs []error
	for _, p := range n.programs {
		if p.Name() == program {
			errs = append(errs, p.Stop())
		}
	}
	return errors.Join(errs...)
}

// Cgroup is the folder of the node's cgroup of version 2, as seen on the node: its own
// programs and its pods are in child cgroups.
func (n *Node) Cgroup() string { return filepath.Dir(n.cgroup.system.Name()) }

// Page returns a check of whether a page is served to clients on the node.
func (n *Node) Page(url string) func(context.Context) error {
	return kube.Page(func(ctx context.Context, _, address string) (net.Conn, error) {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return nil, err
		}
		return n.Host.Dial(ctx, netip.Addr{}, to)
	}, url)
}

func (n *Node) log(program string) string {
	return filepath.Join(n.Cluster.opts.Logs, n.Name+"-"+program+".log")
}

func (n *Node) file(name string) string { return filepath.Join(n.dir, name) }

// ctr runs containerd's client.
func (n *Node) ctr(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "ctr", append([]string{"--address", n.containerd, "--namespace", "k8s.io"}, args...)...)
	said, err := n.Place.Run(cmd)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("ctr %s: %w: %s", args, err, said)
	}
	return nil
}

func (n *Node) answers(args ...string) func(context.Context) error {
	return func(ctx context.Context) error { return n.ctr(ctx, args...) }
}

// close kills everything that runs on the node, including containers and their shims,
// which containerd leaves running when it ends.
func (n *Node) close() error {
	var errs []error
	for _, p := range n.programs {
		errs = append(errs, p.Stop())
	}
	errs = append(errs, n.Place.Do(func() error {
		if err := n.killAll(); err != nil {
			return err
		}
		return n.cgroup.remove()
	}))
	n.Place.Close()
	return errors.Join(errs...)
}

func (n *Node) killAll() error {
	deadline := time.Now().Add(30 * time.Second)
	for {
		pids := append(n.cgroup.processes(), n.inNamespace()...)
		if len(pids) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("node %s: processes %v do not end, though killed", n.Name, pids)
		}
		for _, pid := range pids {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// inNamespace returns the processes in the node's mount namespace.
func (n *Node) inNamespace() []int {
	var pids []int
	all, _ := filepath.Glob("/proc/[0-9]*/ns/mnt")
	for _, path := range all {
		if ns, err := os.Readlink(path); err == nil && ns == n.namespace {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
			if err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
