package cni

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/ipvs"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/budget"
	"github.com/fairlead/fairlead/lab/multisite"
	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/uml"
)

// ipvsMaker is the load balancer that only a guest has on most machines.
const ipvsMaker = "ipvs"

const (
	// guestDev is the name of a guest's link in the guest.
	guestDev = "vec0"
	// guestLimit is the time limit for the guest.
	guestLimit = time.Hour
)

// GuestOptions are the load balancers in the guest: the address of each, and everything
// else that the guest needs.
type GuestOptions struct {
	Address      netip.Prefix
	Gateway      netip.Addr
	IPVS, Tables netip.Addr
	Servers      []netip.Addr
	Port         int
	Pods         []int
}

// WebGuest runs in the guest: it forwards by IPVS and by iptables until ctx ends.
func WebGuest(ctx context.Context, o GuestOptions) error {
	if err := o.connect(); err != nil {
		return fmt.Errorf("%s: %w", guestDev, err)
	}
	d, err := ipvs.Open(ipvs.Config{})
	if err != nil {
		return err
	}
	for _, n := range o.Pods {
		f := desired.Frontend{
			Key:    service.Key{VIP: o.IPVS, Port: uint16(firstPort + n), Protocol: service.TCP},
			Method: service.FullNAT, Scheduler: service.RoundRobin, Survival: service.FlowTable,
		}
		for _, server := range o.Servers[:n] {
			f.Backends = append(f.Backends, service.Backend{Addr: netip.AddrPortFrom(server, uint16(o.Port)), Weight: 1})
		}
		if err := d.Upsert(f); err != nil {
			return err
		}
	}
	tables := exec.CommandContext(ctx, "iptables-legacy-restore", "--noflush")
	tables.Stdin = strings.NewReader((&balanced{vip: o.Tables, servers: o.Servers, port: o.Port}).rules(o.Pods))
	if said, err := tables.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %.500s", tables.Path, err, said)
	}
	<-ctx.Done()
	return nil
}

// connect configures the guest's network.
func (o GuestOptions) connect() error {
	link, err := netlink.LinkByName(guestDev)
	if err != nil {
		return err
	}
	return errors.Join(
		netlink.AddrAdd(link, &netlink.Addr{IPNet: lab.IPNet(o.Address)}), netlink.LinkSetUp(link),
		netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: o.Gateway.AsSlice()}),
		netns.WriteSysctl("net.ipv4.ip_forward", "1"), netns.WriteSysctl("net.ipv4.conf.all.send_redirects", "0"),
		netns.WriteSysctl("net.ipv4.conf."+guestDev+".send_redirects", "0"),
	)
}

// arguments returns the options as flags.
func (o GuestOptions) arguments() []string {
	servers := strings.Trim(strings.ReplaceAll(fmt.Sprint(o.Servers), " ", ","), "[]")
	pods := strings.Trim(strings.ReplaceAll(fmt.Sprint(o.Pods), " ", ","), "[]")
	return []string{"--address", o.Address.String(), "--gateway", o.Gateway.String(), "--ipvs", o.IPVS.String(), "--iptables", o.Tables.String(),
		"--servers", servers, "--port", fmt.Sprint(o.Port), "--pods", pods}
}

// webGuest measures IPVS and iptables in one guest, whose kernel has the budget.
func webGuest(ctx context.Context, o WebOptions, r *bench.Report) (err error) {
	o.logf("guest: %d rounds of %g s", o.Rounds, o.Seconds)
	w, err := newWeb(ctx, o, HostGW)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	g, err := w.startGuest(ctx, 0)
	if err != nil {
		return err
	}
	defer g.stop()
	on := func() []thread { return []thread{g.kernel} }
	var points []webPoint
	for _, b := range g.balancers {
		for _, pods := range o.Pods {
			points = append(points, webPoint{name: fmt.Sprintf("web in a guest, %s, %d pods", b.maker, pods), balanced: b, pods: pods, on: on})
		}
	}
	most := points[len(points)-1]
	one := points[len(points)-len(o.Pods)]
	if err := w.setBudget(ctx, one, most, points, r); err != nil {
		return err
	}
	return w.rounds(ctx, points, r)
}

// guest is a running guest: the thread of its kernel, and its load balancers, IPVS and
// iptables.
type guest struct {
	kernel    budget.Thread
	balancers []*balanced
	said      bytes.Buffer
	stop      func() // ends it
}

// startGuest boots a guest as a pod of Daejeon's node. All guests have the same services of
// IPVS, which are routed to the last one.
func (w *web) startGuest(ctx context.Context, number int) (g *guest, err error) {
	subnet, node := w.Daejeon.Bridge(behind[HostGW]), w.Lab.Host(w.Daejeon.Node)
	o := GuestOptions{
		Address: netip.PrefixFrom(multisite.Nth(subnet, balancerPod+number), subnet.Bits()), Gateway: multisite.Nth(subnet, 1),
		IPVS: w.vip(0), Tables: w.vip(1 + number), Port: webPort, Pods: w.o.Pods,
	}
	for _, p := range w.pods[HostGW] {
		o.Servers = append(o.Servers, p.addr)
	}
	g = &guest{}
	for maker, vip := range map[string]netip.Addr{ipvsMaker: o.IPVS, iptables: o.Tables} {
		g.balancers = append(g.balancers, &balanced{kind: HostGW, maker: maker, vip: vip, pod: place{addr: o.Address.Addr()}})
	}
	slices.SortFunc(g.balancers, func(a, b *balanced) int { return strings.Compare(b.maker, a.maker) })
	if err := w.addTap(node, guestTap(number)); err != nil {
		return nil, fmt.Errorf("tap: %w", err)
	}
	if err := g.boot(ctx, node, guestTap(number), o); err != nil {
		return nil, err
	}
	for _, b := range g.balancers {
		if err := errors.Join(w.spread(b), w.awaitWeb(ctx, b.at(slices.Max(w.o.Pods)))); err != nil {
			g.stop()
			return nil, fmt.Errorf("guest %d: %w; its output: %s", number, err, &g.said)
		}
	}
	return g, nil
}

// guestTap is the name of a guest's link on Daejeon's node.
func guestTap(number int) string { return fmt.Sprintf("guest%d", number) }

// boot starts the guest and waits for its PID.
func (g *guest) boot(ctx context.Context, node *lab.Host, tap string, o GuestOptions) error {
	booting, cancel := context.WithCancel(ctx)
	started, ended := make(chan int, 1), make(chan error, 1)
	go func() {
		ended <- node.Do(func() error {
			args := append([]string{"/proc/1/exe", "bench", "web-guest"}, o.arguments()...)
			status, err := uml.Run(booting, uml.Options{Limit: guestLimit, Dir: "/", Tap: tap, Started: func(pid int) { started <- pid }, Stdout: io.Discard, Stderr: &g.said}, args...)
			return errors.Join(err, fmt.Errorf("the guest has ended with %d: %s", status, &g.said))
		})
	}()
	g.stop = func() {
		cancel()
		<-ended
	}
	select {
	case pid := <-started:
		g.kernel = budget.Thread(pid)
		return nil
	case err := <-ended:
		cancel()
		return err
	}
}

// spread routes the services of load balancers with one address to all of them.
func (w *web) spread(all ...*balanced) error {
	route := &netlink.Route{Dst: lab.IPNet(netip.PrefixFrom(all[0].vip, 32))}
	for _, b := range all {
		route.MultiPath = append(route.MultiPath, &netlink.NexthopInfo{Gw: b.pod.addr.AsSlice()})
	}
	return w.Lab.Host(w.Daejeon.Node).Netlink().RouteReplace(route)
}

// addTap adds a guest's link to the bridge of host-gw.
func (w *web) addTap(node *lab.Host, name string) error {
	err := node.Do(func() error {
		return netlink.LinkAdd(&netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: name, TxQLen: 2000}, Mode: netlink.TUNTAP_MODE_TAP, Flags: netlink.TUNTAP_NO_PI | netlink.TUNTAP_VNET_HDR})
	})
	if err != nil {
		return err
	}
	h := node.Netlink()
	tap, err := h.LinkByName(name)
	if err != nil {
		return err
	}
	bridge, err := h.LinkByName(bridgeOf(HostGW))
	if err != nil {
		return err
	}
	return errors.Join(h.LinkSetMaster(tap, bridge), h.LinkSetUp(tap))
}
