// Package ground is the node on which service proxies are compared: addresses of
// very many endpoints, a way to the addresses of Services, a cgroup, and one
// server that is every endpoint. Who leads there is the experiments' business.
package ground

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
	"github.com/fairlead/fairlead/lab/sandbox"
)

// Node is the node's address, and in Endpoints are those of all endpoints, which
// serve on Port. Services are in kube.ServiceCIDR.
var (
	Node      = netip.MustParseAddr("10.0.0.1")
	Endpoints = netip.MustParsePrefix("10.128.0.0/9")
)

// Port is where every endpoint serves, ServicePort where Services do.
const (
	Port        = 8080
	ServicePort = 80
)

// cgroupPrefix begins the name of the cgroup of a run; the kernel keeps those of
// runs that were killed.
const cgroupPrefix = "fairlead-bench-"

// Ground is the node's addresses, a cgroup with this process and all that it
// starts, and the server.
type Ground struct {
	// Cgroup is the folder of the cgroup.
	Cgroup string

	mount  string
	server net.Listener
}

// New makes it in this network namespace, which is the sandbox's own.
func New() (*Ground, error) {
	g := &Ground{mount: filepath.Join(sandbox.WorkDir, "cgroup")}
	if err := errors.Join(addresses(), g.enterCgroup()); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	var err error
	if g.server, err = net.Listen("tcp4", fmt.Sprintf(":%d", Port)); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	go serve(g.server)
	return g, nil
}

// addresses makes the endpoints' addresses the node's own, and gives packets to
// Services a way, which kube-proxy's rules need.
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

// enterCgroup puts this process into a cgroup of its own, so that what is
// attached there touches nobody else's sockets.
func (g *Ground) enterCgroup() error {
	if err := os.Mkdir(g.mount, 0o700); err != nil {
		return err
	}
	if err := unix.Mount("cgroup2", g.mount, "cgroup2", 0, ""); err != nil {
		return fmt.Errorf("mount cgroup2: %w", err)
	}
	old, _ := filepath.Glob(filepath.Join(g.mount, cgroupPrefix+"*"))
	for _, path := range old {
		_ = os.Remove(path) // one with processes stays
	}
	own := filepath.Join(g.mount, cgroupPrefix+sandbox.OuterPID())
	if err := os.Mkdir(own, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	g.Cgroup = own
	return moveTo(own)
}

// moveTo puts this process into a cgroup.
func moveTo(folder string) error {
	return os.WriteFile(filepath.Join(folder, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0)
}

// Close takes it all away but for the addresses.
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

// serve gives everybody a byte, and waits until they go: so the port is free
// again at once.
func serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			if _, err := conn.Write([]byte{'.'}); err == nil {
				_, _ = io.Copy(io.Discard, conn)
			}
		}()
	}
}
