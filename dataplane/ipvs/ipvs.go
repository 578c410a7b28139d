// Package ipvs is the data plane in the kernel's own load balancer, IPVS: it writes
// virtual services and backends through netlink, and makes the VIPs local addresses of
// the load balancer's network namespace. The kernel stores the state: an agent reads what
// its predecessor wrote, and forwarding continues while no agent runs. Port ranges,
// fullnat, allow and deny also need iptables rules. Everything else works without.
//
// The backends of a frontend, and whether it should exist, are decided elsewhere. What
// IPVS does not support is rejected with a reason.
package ipvs

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"runtime"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/internal/ownns"
	"github.com/fairlead/fairlead/internal/sysctl"
)

// DataPlane is the IPVS data plane. Counters, Describe and EachFlow may be called from
// any goroutine, the other methods from one.
type DataPlane struct {
	config   Config
	ns       netns.NsHandle
	socket   *socket
	services *socket // for reading all services
	routes   *netlink.Handle
	loopback int
	tables   tables
	tool     string // the suffix of the iptables programs that work here

	mu         sync.Mutex
	programmed map[service.Key]*record
	vips       map[netip.Addr]*vip
	foreign    map[serviceID]bool // services written by others
	marks      map[uint32]service.Key
	lastMark   uint32
	nats       map[service.Key]bool // frontends with nat
	guarded    map[service.Key]bool // frontends that do not allow all clients
	fullNATs   [2]int               // frontends with fullnat, by family
	// stale reports that a call has failed halfway: the next one first reads the
	// kernel again.
	stale   bool
	cleared bool // a predecessor's leftovers are removed
}

var (
	_ dataplane.DataPlane = (*DataPlane)(nil)
	_ dataplane.Canonical = (*DataPlane)(nil)
)

// Open configures the namespace for IPVS. A predecessor's state stays and is taken over
// at the first List or write. It wraps ErrNoIPVS on a kernel without IPVS.
func Open(c Config) (*DataPlane, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	d := &DataPlane{config: c, ns: netns.None()}
	if err := d.open(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *DataPlane) open() (err error) {
	if d.config.NetNS == "" {
		d.ns, err = netns.Get()
	} else {
		d.ns, err = netns.GetFromPath(d.config.NetNS)
	}
	if err != nil {
		return fmt.Errorf("ipvs: NetNS: %w", err)
	}
	err = d.inside(func() (err error) {
		d.routes, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		return fmt.Errorf("ipvs: netlink socket: %w", err)
	}
	if err := d.loopbackUp(); err != nil {
		return err
	}
	err = d.inside(func() (err error) {
		if d.socket, err = openSocket(shortDatagram); err != nil {
			return err
		}
		if d.services, err = openSocket(longDatagram); err != nil {
			return err
		}
		if err := sysctl.SetAll(sysctls); err != nil {
			return fmt.Errorf("ipvs: %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	d.stale = true // the state is read on demand
	return errors.Join(d.setTimeouts(), d.setSync())
}

// Present reports whether Fairlead has services in the IPVS of the calling thread's
// namespace. It changes and loads nothing.
func Present() (found bool, err error) {
	if _, err := os.Stat("/proc/net/ip_vs"); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	d := &DataPlane{}
	if d.services, err = openSocket(longDatagram); err != nil {
		return false, err
	}
	err = d.eachService(func(v virtual, _ load) { found = found || v.ours() })
	return found, errors.Join(err, d.services.close())
}

// inside runs f in the data plane's namespace, on a thread that ends with it.
func (d *DataPlane) inside(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if err := ownns.Enter(int(d.ns)); err != nil {
			done <- fmt.Errorf("ipvs: %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}

// loopbackUp ensures that lo is up, which VIPs and IPVS need.
func (d *DataPlane) loopbackUp() error {
	lo, err := d.routes.LinkByIndex(1) // the first of every namespace
	if err == nil && lo.Attrs().RawFlags&unix.IFF_UP == 0 {
		err = d.routes.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("ipvs: set lo up: %w", err)
	}
	d.loopback = lo.Attrs().Index
	return nil
}

// Close closes the data plane, which keeps forwarding.
func (d *DataPlane) Close() error {
	var err error
	for _, s := range []*socket{d.socket, d.services} {
		if s != nil {
			err = errors.Join(err, s.close())
		}
	}
	if d.routes != nil {
		d.routes.Close()
	}
	if d.ns.IsOpen() {
		err = errors.Join(err, d.ns.Close())
	}
	return err
}

// Detach removes everything of Fairlead from the kernel, and closes.
func (d *DataPlane) Detach() error {
	d.mu.Lock()
	err := d.learn()
	var keys []service.Key
	for k := range d.programmed {
		keys = append(keys, k)
	}
	d.mu.Unlock()
	for _, k := range keys {
		err = errors.Join(err, d.Delete(k))
	}
	return errors.Join(err, d.stopSync(), d.removeTables(), d.Close())
}

// Describe implements dataplane.DataPlane.
func (d *DataPlane) Describe() dataplane.Description {
	where := "the network namespace of the node"
	if d.config.NetNS != "" {
		where = "the network namespace " + d.config.NetNS
	}
	out := dataplane.Description{Kind: "ipvs", Attached: []string{where + ": IPVS sees what is addressed to a VIP"}}
	if d.config.Instead != "" {
		out.Warnings = []string{d.config.Instead}
	}
	return out
}
