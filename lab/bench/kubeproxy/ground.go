package kubeproxy

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

	"github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/lab/sandbox"
)

// nodeAddr is the node's address; endpointRange has all endpoints, seeded and
// later ones, serverPort is where they serve.
var (
	nodeAddr      = netip.MustParseAddr("10.0.0.1")
	endpointRange = netip.MustParsePrefix("10.128.0.0/9")
)

const serverPort = 8080

// cgroupPrefix begins the name of the cgroup of a run; the kernel keeps those of
// runs that were killed.
const cgroupPrefix = "fairlead-bench-"

// ground is the node: its addresses, a cgroup with this process and all that it
// starts, and one server that is every endpoint.
type ground struct {
	mount, cgroup string
	server        net.Listener
}

func newGround() (*ground, error) {
	g := &ground{mount: filepath.Join(sandbox.WorkDir, "cgroup")}
	if err := errors.Join(g.addresses(), g.enterCgroup()); err != nil {
		return nil, errors.Join(err, g.close())
	}
	var err error
	if g.server, err = net.Listen("tcp4", fmt.Sprintf(":%d", serverPort)); err != nil {
		return nil, errors.Join(err, g.close())
	}
	go serve(g.server)
	return g, nil
}

// addresses makes the endpoints' addresses the node's own, and gives packets to
// Services a way, which kube-proxy's rules need.
func (g *ground) addresses() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.AddrReplace(lo, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(nodeAddr, 32))}); err != nil {
		return fmt.Errorf("address of the node: %w", err)
	}
	for _, r := range []*netlink.Route{
		{LinkIndex: lo.Attrs().Index, Dst: ipNet(endpointRange), Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST},
		{LinkIndex: lo.Attrs().Index, Dst: ipNet(netip.MustParsePrefix(kube.ServiceCIDR)), Src: nodeAddr.AsSlice()},
	} {
		if err := netlink.RouteReplace(r); err != nil {
			return fmt.Errorf("route to %s: %w", r.Dst, err)
		}
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// enterCgroup puts this process into a cgroup of its own, so that what is
// attached there touches nobody else's sockets.
func (g *ground) enterCgroup() error {
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
	g.cgroup = own
	return moveTo(own)
}

// moveTo puts this process into a cgroup.
func moveTo(folder string) error {
	return os.WriteFile(filepath.Join(folder, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0)
}

func (g *ground) close() error {
	var errs []error
	if g.server != nil {
		errs = append(errs, g.server.Close())
	}
	if g.cgroup != "" {
		errs = append(errs, moveTo(g.mount), os.Remove(g.cgroup))
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
