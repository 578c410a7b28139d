package ecmp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/router"
)

var (
	reflectorAddr = netip.MustParseAddr("10.0.0.109")
	routerAddr    = netip.MustParseAddr("10.0.0.110")
)

// network is what the cases run in:
//
//	balancers 10.0.1.1 … ──┐ (their topology depends on the case)
//	reflector 10.0.0.109 ──┤ switch
//	router    10.0.0.110 ──┘
type network struct {
	o     Options
	lab   *lab.Lab
	dir   string
	table *router.Table // of the router's kernel, for inspection
}

// segment is the switch that connects all hosts.
const segment = "nodes"

// newNetwork builds the network with the given load balancers.
func newNetwork(ctx context.Context, o Options, balancers lab.Topology) (n *network, err error) {
	l, err := lab.Build(ctx, lab.Topology{
		Hosts:    append([]lab.HostSpec{{Name: "reflector"}, {Name: "router", Forward: true}}, balancers.Hosts...),
		Switches: []lab.SwitchSpec{{Name: segment}},
		Links: append([]lab.Link{
			{A: lab.At("reflector", "eth0", reflectorAddr.String()+"/16"), B: lab.Port(segment)},
			{A: lab.At("router", "eth0", routerAddr.String()+"/16"), B: lab.Port(segment)},
		}, balancers.Links...),
	})
	if err != nil {
		return nil, err
	}
	n = &network{o: o, lab: l}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	if n.dir, err = os.MkdirTemp("", "fairlead-ecmp-"); err != nil {
		return n, err
	}
	n.table, err = router.New(router.Config{NetNS: l.Host("router").Namespace().FD()})
	return n, err
}

// newSpeakersNetwork builds the network with one host that has the addresses of all load
// balancers.
func newSpeakersNetwork(ctx context.Context, o Options, balancers int) (n *network, host string, err error) {
	spec := lab.HostSpec{Name: "balancers"}
	for i := range balancers {
		spec.Loopback = append(spec.Loopback, balancerAddr(i).String()+"/32")
	}
	n, err = newNetwork(ctx, o, lab.Topology{
		Hosts: []lab.HostSpec{spec},
		Links: []lab.Link{{A: lab.At(spec.Name, "eth0", "10.0.2.1/16"), B: lab.Port(segment)}},
	})
	return n, spec.Name, err
}

func (n *network) close() error {
	err := n.lab.Close()
	if n.table != nil {
		n.table.Close(false)
	}
	os.RemoveAll(n.dir)
	return err
}

// start runs the binary in a host. Its log is in the folder, named after the host.
func (n *network) start(host string, args ...string) (*lab.Process, error) {
	p, err := n.lab.Host(host).StartLogged(exec.Command(n.o.Binary, args...), filepath.Join(n.dir, host+".log"))
	if err != nil {
		return nil, err
	}
	return p, p.GoFirst()
}

func (n *network) startReflector() (*lab.Process, error) {
	return n.start("reflector", "reflector", "--router-id", reflectorAddr.String(), "--client-range", "10.0.1.0/24",
		"--router-range", routerAddr.String(), "--socket", filepath.Join(n.dir, "reflector.sock"))
}

func (n *network) startRouter() (*lab.Process, error) {
	return n.start("router", "router", "--router-id", routerAddr.String(), "--peer", reflectorAddr.String(),
		"--socket", filepath.Join(n.dir, "router.sock"))
}

// speakers is a process that speaks BGP for some load balancers.
type speakers struct {
	in  io.WriteCloser
	out *bufio.Scanner
}

// speak starts such a process in a host, and returns when all its load balancers have
// established their sessions. The process ends with the host.
func (n *network) speak(host string, first, balancers int) (*speakers, error) {
	_, in, out, err := n.lab.Host(host).Converse(lab.Self("bench", "speakers", "--reflector", reflectorAddr.String(),
		"--first", fmt.Sprint(first), "--balancers", fmt.Sprint(balancers)))
	if err != nil {
		return nil, err
	}
	s := &speakers{in: in, out: bufio.NewScanner(out)}
	return s, s.answered()
}

func (s *speakers) answered() error {
	if !s.out.Scan() {
		return fmt.Errorf("the load balancers' process exited: %v", s.out.Err())
	}
	said := ""
	if err := json.Unmarshal(s.out.Bytes(), &said); err != nil {
		return err
	}
	if said != "" {
		return fmt.Errorf("balancers: %s", said)
	}
	return nil
}

// send sends an order and does not wait for completion.
func (s *speakers) send(o order) error { return json.NewEncoder(s.in).Encode(o) }

// obey sends an order and waits for completion.
func (s *speakers) obey(o order) error { return errors.Join(s.send(o), s.answered()) }

// hops returns the number of next hops in the router's kernel for a prefix.
func (n *network) hops(i int) int {
	to := servicePrefix(i)
	rs, err := n.lab.Host("router").Netlink().RouteGetWithOptions(to.Addr().Next().AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
	if err != nil || len(rs) == 0 || rs[0].Dst == nil || rs[0].Dst.String() != to.String() {
		return 0
	}
	return max(1, len(rs[0].MultiPath))
}

// until waits until the first prefixes have the given number of next hops, and returns
// how long that took since the given time. It checks prefixes one after the other,
// because a prefix that is right stays right.
func (n *network) until(ctx context.Context, since time.Time, prefixes, hops int) (time.Duration, error) {
	for i := range prefixes {
		if _, err := n.untilOne(ctx, since, i, hops); err != nil {
			return 0, err
		}
	}
	return time.Since(since), nil
}

// untilOne is until for a single prefix.
func (n *network) untilOne(ctx context.Context, since time.Time, prefix, hops int) (time.Duration, error) {
	for n.hops(prefix) != hops {
		if time.Since(since) > time.Minute || ctx.Err() != nil {
			return 0, fmt.Errorf("the router has %d next hops for %s after a minute, want %d", n.hops(prefix), servicePrefix(prefix), hops)
		}
		time.Sleep(200 * time.Microsecond)
	}
	return time.Since(since), nil
}

// endRouter kills the router and empties its kernel's table.
func (n *network) endRouter(router *lab.Process) error {
	if err := router.Kill(); err != nil {
		return err
	}
	<-router.Done()
	return errors.Join(n.table.Set(nil), n.table.Resync())
}
