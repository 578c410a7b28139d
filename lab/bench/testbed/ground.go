// Package testbed is the testbed for comparing service proxies: one node with the
// addresses of very many endpoints, a route to the addresses of Services, a cgroup, and
// one server that acts as every endpoint. Each experiment installs the proxy that it
// measures.
package testbed

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/sandbox"
)

// Node is the node's address. Endpoints contains the addresses of all endpoints, which
// listen on Port. Services are in kube.ServiceCIDR.
var (
	Node      = netip.MustParseAddr("10.0.0.1")
	Endpoints = netip.MustParsePrefix("10.128.0.0/9")
)

// Port is the port of every endpoint, ServicePort the port of every Service.
const (
	Port        = 8080
	ServicePort = 80
)

// cgroupPrefix is the prefix of the name of a run's cgroup. The kernel retains the
// cgroups of runs that were killed.
const cgroupPrefix = "fairlead-bench-"

// Ground is the testbed: the node's addresses, a cgroup with this process and its
// children, and the server.
type Ground struct {
	// Cgroup is the path of the cgroup.
	Cgroup string

	mount  string
	server net.Listener
}

// New sets up the testbed in this network namespace, which must be the sandbox's.
func New() (*Ground, error) {
	g := &Ground{mount: filepath.Join(sandbox.WorkDir, "cgroup")}
	if err := errors.Join(addresses(), g.enterCgroup()); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	var err error
	if g.server, err = net.Listen("tcp4", fmt.Sprintf(":%d", Port)); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	go netns.ServeTCP(g.server, answer)
	return g, nil
}

// addresses assigns the endpoints' addresses to the node, and adds a route to Services,
// which kube-proxy's rules need.
func addresses() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.AddrReplace(lo, &netlink.Addr{IPNet: lab.IPNet(netip.PrefixFrom(Node, 32))}); err != nil {
		return fmt.Errorf("address of the node: %w", err)
	}
	for _, r := range []*netlink.Route{
		{LinkIndex: lo.Attrs().Index, Dst: lab.IPNet(Endpoints), Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST},
		{LinkIndex: lo.Attrs().Index, Dst: lab.IPNet(netip.MustParsePrefix(kube.ServiceCIDR)), Src: Node.AsSlice()},
	} {
		if err := netlink.RouteReplace(r); err != nil {
			return fmt.Errorf("route to %s: %w", r.Dst, err)
		}
	}
	return nil
}

// enterCgroup moves this process into its own cgroup, so that programs attached there do
// not affect other sockets.
func (g *Ground) enterCgroup() error {
	if err := os.Mkdir(g.mount, 0o700); err != nil {
		return err
	}
	if err := unix.Mount("cgroup2", g.mount, "cgroup2", 0, ""); err != nil {
		return fmt.Errorf("mount cgroup2: %w", err)
	}
	old, _ := filepath.Glob(filepath.Join(g.mount, cgroupPrefix+"*"))
	for _, path := range old {
		_ = os.Remove(path) // fails if it still contains processes
	}
	own := filepath.Join(g.mount, cgroupPrefix+sandbox.OuterPID())
	if err := os.Mkdir(own, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	g.Cgroup = own
	return moveTo(own)
}

// moveTo moves this process into a cgroup.
func moveTo(folder string) error {
	return os.WriteFile(filepath.Join(folder, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0)
}

// Close removes everything except the addresses.
func (g *Ground) Close() error {
	var errs []error
	if g.server != nil {
		errs = append(errs, g.server.Close())
	}
	if g.Cgroup != "" {
		errs = append(errs, moveTo(g.mount), os.Remove(g.Cgroup))
	}
	if _, err := os.Stat(g.mount); err == nil {
		errs = append(errs, unix.Unmount(g.mount, unix.MNT_DETACH), os.Remove(g.mount))
	}
	return errors.Join(errs...)
}

// answer sends one byte to a client and waits until the client closes, so that the server's
// port is free again immediately.
func answer(conn net.Conn) {
	if _, err := conn.Write([]byte{'.'}); err == nil {
		_, _ = io.Copy(io.Discard, conn)
	}
}
