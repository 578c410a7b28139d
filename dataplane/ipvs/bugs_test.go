package ipvs

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
)

// Known problems of kube-proxy's ipvs mode: one test each, with real TCP.

// backendOf returns the number of the backend with that name.
func backendOf(name string) int { return int(name[1] - '1') }

func drained(f desired.Frontend, i int) desired.Frontend {
	f.Backends = slices.Clone(f.Backends)
	f.Backends[i].Weight = 0
	return f
}

func without(f desired.Frontend, i int) desired.Frontend {
	f.Backends = slices.Delete(slices.Clone(f.Backends), i, i+1)
	return f
}

// kubernetes #57841: connections to a pod that terminates gracefully were reset.
func TestGracefulTermination(t *testing.T) {
	for _, method := range []service.Method{service.NAT, service.DR, service.FullNAT} {
		t.Run(string(method), func(t *testing.T) {
			w := newWorld(t, method)
			w.serve(80)
			f := frontend(method, service.RoundRobin, vip4, 80, 80)
			w.upsert(f)
			at := netip.AddrPortFrom(vip4, 80)
			open := w.dial(at)
			name, err := open.who()
			must(t, err)
			f = drained(f, backendOf(name))
			w.upsert(f)
			for range 5 {
				if got := w.answers(at); got == name {
					t.Fatalf("%s drains and got a new connection", name)
				}
				if got, err := open.who(); err != nil || got != name {
					t.Fatalf("the open connection: %s, %v", got, err)
				}
			}
			w.open(Config{}) // also across a restart
			if got, err := open.who(); err != nil || got != name {
				t.Fatalf("the open connection: %s, %v", got, err)
			}
			must(t, open.bye())
		})
	}
}

// kubernetes #71894: services were left behind in the kernel.
func TestNothingIsLeftBehind(t *testing.T) {
	w := newWorld(t, service.NAT)
	one, whole := frontend(service.NAT, service.RoundRobin, vip4, 80, 80), frontend(service.NAT, service.RoundRobin, vip6, 80, 0)
	whole.Key = service.Key{VIP: vip6, Last: 65535}
	full := frontend(service.FullNAT, service.RoundRobin, vip4, 443, 80)
	for _, f := range []desired.Frontend{one, whole, full} {
		w.upsert(f)
	}
	// An agent was killed halfway: a service without its rule, and a route without
	// its service.
	cut := recordOf(whole, markSpace|77, service.DefaultGUEPort)
	must(t, w.plane.apply(changes(nil, cut)))
	must(t, w.plane.routes.RouteAdd(w.plane.routeTo(netip.MustParseAddr("10.1.9.9"))))
	w.open(Config{})
	if got := w.listed(); len(got) != 3 {
		t.Errorf("listed %v, want three", got)
	}
	for k := range w.listed() {
		must(t, w.plane.Delete(k))
	}
	w.empty()
	w.upsert(one)
	w.upsert(full)
	must(t, w.plane.Detach())
	w.plane = nil
	w.empty()
	w.open(Config{})
}

// kubernetes #84322: clients stayed with a removed backend.
func TestNoClientIsStuck(t *testing.T) {
	for _, affinity := range []time.Duration{0, time.Hour} {
		t.Run(affinity.String(), func(t *testing.T) {
			w := newWorld(t, service.NAT)
			w.serve(80)
			f := frontend(service.NAT, service.RoundRobin, vip4, 80, 80)
			f.Affinity = affinity
			udp := f
			udp.Protocol = service.UDP
			w.upsert(f)
			w.upsert(udp)
			at := netip.AddrPortFrom(vip4, 80)
			open := w.dial(at)
			name, err := open.who()
			must(t, err)
			asked, err := w.ask(20000, at)
			must(t, err)
			w.upsert(without(f, backendOf(name)))
			w.upsert(without(udp, backendOf(asked)))
			if got, err := open.who(); !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("the open connection: %q, %v; want it reset", got, err)
			}
			if got := w.answers(at); got == name {
				t.Errorf("a new connection went to %s, which is gone", got)
			}
			if got, err := w.ask(20000, at); err != nil || got == asked {
				t.Errorf("the same UDP flow: %q, %v; want another than %s", got, err, asked)
			}
		})
	}
}

// kubernetes #81775: reusing a client's port selected its previous backend, removed or
// not, or cost a second.
func TestPortReuse(t *testing.T) {
	for _, method := range []service.Method{service.NAT, service.FullNAT, service.DR} {
		t.Run(string(method), func(t *testing.T) {
			w := newWorld(t, method)
			w.serve(80)
			f := frontend(method, service.RoundRobin, vip4, 80, 80)
			w.upsert(f)
			at := netip.AddrPortFrom(vip4, 80)
			c := w.dialFrom(30000, at)
			name, err := c.who()
			must(t, err)
			must(t, c.bye())
			for range 3 { // drain all but one, each time the one that the port had
				f = drained(f, backendOf(name))
				if backends := slices.DeleteFunc(slices.Clone(f.Backends), service.Backend.Draining); len(backends) == 0 {
					break
				}
				w.upsert(f)
				c := w.dialFrom(30000, at)
				got, err := c.who()
				must(t, err)
				if f.Backends[backendOf(got)].Draining() {
					t.Fatalf("the port led to %s, which drains", got)
				}
				if n := retransmits(t, c); n > 0 {
					t.Errorf("%d packets were sent in vain", n)
				}
				must(t, c.bye())
				name = got
			}
		})
	}
}

// retransmits counts a connection's retransmissions.
func retransmits(t *testing.T, c *conn) (n uint32) {
	t.Helper()
	raw, err := c.Conn.(*net.TCPConn).SyscallConn()
	must(t, err)
	must(t, raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		must(t, err)
		n = info.Total_retrans
	}))
	return n
}

// kubernetes #73382: every change cost a full sync of many seconds. Here only the change
// is sent to the kernel, with a thousand services as with ten.
func TestWorkGrowsWithTheChange(t *testing.T) {
	w := newWorld(t, service.NAT)
	many := func(n int) (all []desired.Frontend) {
		for i := range n {
			f := frontend(service.NAT, service.RoundRobin, netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 80, 80)
			all = append(all, f)
		}
		return all
	}
	sent := func(do func()) uint32 {
		before := w.plane.socket.seq
		do()
		return w.plane.socket.seq - before
	}
	var costs []string
	for _, n := range []int{10, 1000} {
		all := many(n)
		for _, f := range all {
			w.upsert(f)
		}
		w.open(Config{})
		programmed := w.listed()
		if len(programmed) != n {
			t.Fatalf("%d are programmed, want %d", len(programmed), n)
		}
		restart := sent(func() {
			for _, f := range all {
				if !programmed[f.Key].Same(w.plane.Canonical(f)) {
					t.Fatalf("%s would be written again", f.Key)
				}
				w.upsert(f)
			}
		})
		one := frontend(service.NAT, service.Maglev, netip.MustParseAddr("10.1.200.1"), 80, 80)
		more := sent(func() { w.upsert(one) })
		less := sent(func() { w.upsert(without(one, 0)) })
		weight := sent(func() { w.upsert(drained(without(one, 0), 0)) })
		gone := sent(func() { must(t, w.plane.Delete(one.Key)) })
		costs = append(costs, fmt.Sprint(restart, more, less, weight, gone))
	}
	if want := "0 4 1 1 1"; costs[0] != want || costs[1] != want {
		t.Errorf("messages: %q, want %q each", costs, want)
	}
}
