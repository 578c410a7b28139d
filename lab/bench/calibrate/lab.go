package calibrate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/topology"
)

// servers is the number of backends of the service.
const servers = 4

// linkBits floods a link shaped like those of the load balancers, and returns the
// throughput in bit/s. If a busy machine cannot fill the link, it returns the configured
// rate.
func linkBits(ctx context.Context, o Options) (bits float64, err error) {
	const there = "10.1.1.1"
	fmt.Fprintln(o.Progress, "calibrate: a link")
	l, err := lab.Build(ctx, lab.Topology{
		Hosts: []lab.HostSpec{{Name: "a"}, {Name: "b"}},
		Links: []lab.Link{{
			A: lab.At("a", "eth0", "10.1.1.2/24").Shaped(topology.ServiceShape(o.LinkRate, netip.MustParsePrefix("10.1.1.0/24"))),
			B: lab.At("b", "eth0", there+"/24"),
		}},
	})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	sink, err := listen(l.Host("b"))
	if err != nil {
		return 0, err
	}
	defer sink.close()
	s, err := open(l.Host("a"), []netip.Addr{netip.MustParseAddr("10.1.1.2")}, netip.AddrPortFrom(netip.MustParseAddr(there), topology.ServerPort), 1)
	if err != nil {
		return 0, err
	}
	defer s.close()
	for range floods {
		bits, full, err := flood(ctx, s, sink, int(2*o.LinkRate/8/PacketBytes))
		if full || err != nil {
			return bits, err
		}
	}
	fmt.Fprintln(o.Progress, "calibrate: the link never was full, as this machine is too busy: it is taken for what it is set to")
	return float64(o.LinkRate), nil
}

// floods is the maximum number of attempts to fill a link.
const floods = 5

// flood sends rate packets per second over a link. It returns the throughput in bit/s,
// and whether the link was full, that is, carried less than was sent. Otherwise the
// sender was the bottleneck.
func flood(ctx context.Context, s *source, to *sink, rate int) (bits float64, full bool, err error) {
	// One second to fill the queue, and two to count.
	var at time.Time
	var got uint64
	var sent int
	err = s.send(ctx, rate, 3*time.Second, time.Second, func() error {
		at, got, sent = time.Now(), to.got.Load(), s.sent
		return nil
	})
	came, offered := float64(to.got.Load()-got), float64(s.sent-sent)
	return came * 8 * PacketBytes / time.Since(at).Seconds(), came < 0.9*offered, err
}

// system is the network of the papers with one service.
type system struct {
	*cluster.Cluster
	sinks []*sink
}

func newSystem(ctx context.Context, o Options) (s *system, err error) {
	c, err := cluster.New(ctx, cluster.Options{
		Binary: o.Binary, Router: cluster.RouterFairlead, Logs: o.Logs,
		Paper: topology.Options{Services: make([]topology.ServiceOptions, 1), Nodes: o.Balancers + 1, BalancerRate: o.LinkRate},
	})
	if err != nil {
		return nil, err
	}
	s = &system{Cluster: c}
	for range servers {
		pod, err := c.AddServerPod(ctx, 0)
		if err != nil {
			return s, err
		}
		sink, err := listen(c.Lab.Host(pod.Name))
		if err != nil {
			return s, err
		}
		s.sinks = append(s.sinks, sink)
	}
	return s, c.Write(0, "service.yaml", s.manifest())
}

func (s *system) close() error {
	for _, k := range s.sinks {
		k.close()
	}
	return s.Close()
}

// manifest returns the service's manifest: UDP, and no health checks, since nothing
// answers them.
func (s *system) manifest() string {
	svc := s.Services[0]
	var b strings.Builder
	fmt.Fprintf(&b, `apiVersion: v1
kind: Service
metadata:
  name: %[1]s
  annotations: {fairlead.io/advertise-prefixes: %[2]s, fairlead.io/health-check: none}
spec:
  type: LoadBalancer
  loadBalancerIP: %[3]s
  ports: [{port: %[4]d, protocol: UDP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: %[1]s-1
  labels: {kubernetes.io/service-name: %[1]s}
addressType: IPv4
ports: [{port: %[4]d, protocol: UDP}]
endpoints:
`, svc.Name, svc.Prefix, svc.VIP.Addr(), topology.ServerPort)
	for _, pod := range s.Servers(0) {
		fmt.Fprintf(&b, "- {addresses: [%s], nodeName: %s, conditions: {ready: true}}\n", pod.Addr, pod.Node.Name)
	}
	return b.String()
}

// inService waits until all load balancers have programmed the service.
func (s *system) inService(ctx context.Context) error {
	holds := func(v status.Status) bool {
		return len(v.Services) == 1 && len(v.Services[0].Frontends) == 1 && len(v.Services[0].Frontends[0].Backends) == servers
	}
	if _, ok := cluster.Await(ctx, 20*time.Millisecond, cluster.StartLimit, func() bool { return s.EveryBalancer(ctx, 0, holds) }); !ok {
		return errors.Join(ctx.Err(), errors.New("calibrate: the load balancers did not program the service"))
	}
	return nil
}

func (s *system) got() (sum uint64) {
	for _, k := range s.sinks {
		sum += k.got.Load()
	}
	return sum
}

// sink counts the datagrams that arrive at a host.
type sink struct {
	conn net.PacketConn
	got  atomic.Uint64
}

func listen(h *lab.Host) (*sink, error) {
	c, err := h.ListenPacket("udp", fmt.Sprintf(":%d", topology.ServerPort))
	if err != nil {
		return nil, err
	}
	if err := roomy(c); err != nil {
		c.Close()
		return nil, err
	}
	s := &sink{conn: c}
	go func() {
		buf := make([]byte, 2048)
		for {
			if _, _, err := c.ReadFrom(buf); err != nil {
				return
			}
			s.got.Add(1)
		}
	}()
	return s, nil
}

func (s *sink) close() { s.conn.Close() }

// roomy enlarges the receive buffer for datagrams that a busy machine reads late. Only
// links may lose packets.
func roomy(c net.PacketConn) (err error) {
	raw, err := c.(*net.UDPConn).SyscallConn()
	if err != nil {
		return err
	}
	failed := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20) })
	return errors.Join(failed, err)
}

// source sends datagrams of several flows in rotation.
type source struct {
	to    net.Addr
	conns []net.PacketConn
	sent  int
}

func open(h *lab.Host, from []netip.Addr, to netip.AddrPort, flows int) (*source, error) {
	s := &source{to: net.UDPAddrFromAddrPort(to)}
	for i := range flows {
		c, err := h.ListenPacket("udp", netip.AddrPortFrom(from[i%len(from)], 0).String())
		if err != nil {
			s.close()
			return nil, err
		}
		s.conns = append(s.conns, c)
	}
	return s, nil
}

func (s *source) close() {
	for _, c := range s.conns {
		c.Close()
	}
}

// payload is PacketBytes without the Ethernet, IPv4 and UDP headers.
const payload = PacketBytes - 14 - 20 - 8

// late is how far a source may fall behind schedule before it skips what it has not sent.
// On a busy machine the source must become slower, not burstier.
const late = 20 * time.Millisecond

// send sends rate packets per second for the duration long, and calls midway once, after
// the duration when.
func (s *source) send(ctx context.Context, rate int, long, when time.Duration, midway func() error) error {
	each := time.Second / time.Duration(rate)
	due, end := time.Now(), time.Now().Add(long)
	turn := due.Add(when)
	packet := make([]byte, payload)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for now := due; now.Before(end); now = time.Now() {
		if now.Sub(due) > late {
			due = now
		}
		for ; due.Before(now); due = due.Add(each) {
			if _, err := s.conns[s.sent%len(s.conns)].WriteTo(packet, s.to); err != nil {
				return err
			}
			s.sent++
		}
		if midway != nil && !now.Before(turn) {
			if err := midway(); err != nil {
				return err
			}
			midway = nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}
