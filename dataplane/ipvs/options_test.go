package ipvs

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/xdp"
	"github.com/fairlead/fairlead/lab"
)

// A packet is for the frontend with its exact port, else the range, else the whole
// address. Backends receive it on the client's destination port.
func TestRanges(t *testing.T) {
	for _, vip := range []netip.Addr{vip4, vip6} {
		t.Run(vip.String(), func(t *testing.T) {
			w := newWorld(t, service.NAT)
			for _, port := range []uint16{80, 8000, 8001, 8080} {
				w.serve(port)
			}
			only := func(k service.Key, i int) desired.Frontend {
				f := frontend(service.NAT, service.RoundRobin, vip, 80, 0)
				f.Key, f.Backends = k, f.Backends[i:i+1]
				return f
			}
			one := only(service.Key{VIP: vip, Port: 80, Protocol: service.TCP}, 0)
			one.Backends[0].Addr = netip.AddrPortFrom(one.Backends[0].Addr.Addr(), 8080)
			some := only(service.Key{VIP: vip, Port: 8000, Last: 8001, Protocol: service.TCP}, 1)
			whole := only(service.Key{VIP: vip, Last: 65535}, 2)
			expect := func(port uint16, want string) {
				t.Helper()
				got, err := "", error(nil)
				if c, dialErr := w.tryDial(netip.AddrPortFrom(vip, port)); dialErr != nil {
					err = dialErr
				} else {
					got, err = c.who()
				}
				if got != want || (err == nil) != (want != "") {
					t.Errorf("port %d: %q, %v; want %q", port, got, err, want)
				}
			}
			w.upsert(some)
			w.upsert(one)
			expect(80, "s1")
			expect(8000, "s2")
			expect(8001, "s2")
			expect(8080, "") // refused immediately: no frontend has it
			w.upsert(whole)
			expect(8080, "s3")
			expect(80, "s1")
			expect(8001, "s2")
			if name, err := w.ask(20000, netip.AddrPortFrom(vip, 8000)); err != nil || name != "s3" {
				t.Errorf("UDP of the whole address: %q, %v", name, err)
			}
			w.open(Config{})
			for _, f := range []desired.Frontend{one, some, whole} {
				if got := w.listed()[f.Key]; !got.Same(canonical(f)) {
					t.Errorf("%s: lists %+v", f.Key, got)
				}
			}
			must(t, w.plane.Delete(some.Key))
			expect(8001, "s3")
			must(t, w.plane.Delete(one.Key))
			expect(80, "s3")
			must(t, w.plane.Delete(whole.Key))
			expect(80, "")
			w.empty()
		})
	}
}

// nat and fullnat together: only the latter hides the client.
func TestNATBesideFullNAT(t *testing.T) {
	w := newWorld(t, service.NAT)
	seen := make(chan string, 1)
	for i := range servers {
		l, err := w.lab.Host(fmt.Sprint("s", i+1)).Listen("tcp", ":80")
		must(t, err)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				seen <- netip.MustParseAddrPort(c.RemoteAddr().String()).Addr().Unmap().String()
				c.Close()
			}
		}()
	}
	nat, full := frontend(service.NAT, service.RoundRobin, vip4, 80, 80), frontend(service.FullNAT, service.RoundRobin, vip4, 81, 80)
	source := func(port uint16) string {
		t.Helper()
		w.dial(netip.AddrPortFrom(vip4, port)).Close()
		return <-seen
	}
	expect := func(port uint16, want string) {
		t.Helper()
		if got := source(port); got != want {
			t.Errorf("port %d: the server sees %s, want %s", port, got, want)
		}
	}
	w.upsert(nat)
	w.upsert(full)
	expect(80, "192.168.0.2")
	expect(81, "172.16.0.1")
	nat.Method, full.Method = full.Method, nat.Method // in place, both together
	w.upsert(nat)
	w.upsert(full)
	expect(80, "172.16.0.1")
	expect(81, "192.168.0.2")
	if got := w.listed(); !got[nat.Key].Same(canonical(nat)) || !got[full.Key].Same(canonical(full)) {
		t.Errorf("lists %+v", got)
	}
	w.upsert(frontend(service.NAT, service.RoundRobin, vip4, 80, 80))
	expect(80, "192.168.0.2")
	expect(81, "192.168.0.2")
}

// A client stays with its backend as long as that accepts new connections.
func TestAffinity(t *testing.T) {
	w := newWorld(t, service.NAT)
	w.serve(80)
	f := frontend(service.NAT, service.RoundRobin, vip4, 80, 80)
	f.Affinity = time.Hour
	w.upsert(f)
	at := netip.AddrPortFrom(vip4, 80)
	first := w.spread(at, 5)
	w.open(Config{})
	w.upsert(f)
	for name := range w.spread(at, 3) {
		if first[name] != 5 {
			t.Errorf("five connections went to %v, then one to %s", first, name)
		}
		f = drained(f, backendOf(name))
	}
	w.upsert(f)
	if second := w.spread(at, 5); len(second) != 1 || first[w.answers(at)] > 0 {
		t.Errorf("while %v drains: %v", first, second)
	}
}

// With every scheduler a draining backend gets nothing new, and one with a limit no more
// than that: ended connections count until they are forgotten.
func TestDrainingAndLimits(t *testing.T) {
	w := newWorld(t, service.NAT)
	for i, scheduler := range service.Schedulers {
		drains, limited := uint16(8000+i), uint16(9000+i)
		f := frontend(service.NAT, scheduler, vip4, 80, drains)
		if (Config{}).check(drained(f, 1)) != nil {
			continue // rejected with a reason
		}
		w.serve(drains)
		w.serve(limited)
		w.upsert(drained(f, 1))
		at := netip.AddrPortFrom(vip4, 80)
		if got := w.spread(at, 20); got["s2"] > 0 {
			t.Errorf("%s: s2 drains: %v", scheduler, got)
		}
		// On other ports: packets of connections that have just ended would
		// count.
		f = frontend(service.NAT, scheduler, vip4, limited, limited)
		at = netip.AddrPortFrom(vip4, limited)
		for i := range f.Backends {
			f.Backends[i].MaxConns = uint32(i + 1)
		}
		w.upsert(f)
		got := map[string]uint32{}
		for range 6 {
			name, err := w.dial(at).who() // and stays open
			must(t, err)
			got[name]++
		}
		if fmt.Sprint(got) != "map[s1:1 s2:2 s3:3]" {
			t.Errorf("%s: limits of 1, 2 and 3: %v", scheduler, got)
		}
		if c, err := w.tryDial(at); err == nil {
			c.Close()
			t.Errorf("%s: one more was taken", scheduler)
		}
	}
}

// UDP without flow tracking leaves nothing in the table.
func TestOnePacket(t *testing.T) {
	w := newWorld(t, service.Tunnel)
	w.serve(80)
	w.tunnelEnds()
	f := frontend(service.Tunnel, service.Maglev, vip4, 80, 80)
	f.Protocol, f.Survival = service.UDP, service.HashOnly
	w.upsert(f)
	at := netip.AddrPortFrom(vip4, 80)
	had := map[string]bool{}
	for port := range uint16(20) {
		first, err := w.ask(20000+port, at)
		must(t, err)
		again, err := w.ask(20000+port, at)
		if err != nil || again != first {
			t.Fatalf("port %d: %s, then %s, %v", port, first, again, err)
		}
		had[first] = true
	}
	if len(had) != servers {
		t.Errorf("only %v had any", had)
	}
	if n, err := alive(w.plane); n != 0 || err != nil {
		t.Errorf("%d flows are remembered (%v), want none", n, err)
	}
}

// alive counts the flows that have not ended.
func alive(d *DataPlane) (n int, err error) {
	for f, err := range d.EachFlow(dataplane.FlowQuery{}) {
		if err != nil {
			return 0, err
		}
		if f.State != closed {
			n++
		}
	}
	return n, nil
}

func TestFlowsAndCounters(t *testing.T) {
	w := newWorld(t, service.NAT)
	w.serve(80)
	w.upsert(frontend(service.NAT, service.RoundRobin, vip4, 80, 80))
	w.upsert(frontend(service.NAT, service.RoundRobin, vip6, 80, 80))
	at := netip.AddrPortFrom(vip4, 80)
	c, other := w.dial(at), w.dial(netip.AddrPortFrom(vip6, 80))
	name, err := c.who()
	must(t, err)
	_, err = other.who()
	must(t, err)
	client := netip.MustParseAddrPort(c.LocalAddr().String())
	want := dataplane.Flow{
		Client: client, VIP: at, Protocol: service.TCP, State: "established",
		Server: netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 16, 0, byte(11 + backendOf(name))}), 80),
	}
	found := 0
	for f, err := range w.plane.EachFlow(dataplane.FlowQuery{Client: client}) {
		must(t, err)
		if found++; f.Idle > time.Minute {
			t.Errorf("idle for %s", f.Idle)
		}
		if f.Idle = 0; f != want {
			t.Errorf("\n got %+v\nwant %+v", f, want)
		}
	}
	if n, err := alive(w.plane); found != 1 || n != 2 || err != nil {
		t.Errorf("%d of the client's, %d in all (%v); want 1 and 2", found, n, err)
	}
	w.eventually(func() error {
		counters, err := w.plane.Counters()
		if err != nil || len(counters) != 2 || counters[0].Key.VIP != vip4 {
			return fmt.Errorf("%v, %w", counters, err)
		}
		got := counters[0]
		if got.Total.Flows != 1 || got.Total.Packets < 3 || got.Total.Bytes < 100 || got.Backends[want.Server.String()] != got.Total || len(got.Backends) != servers {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
}

// Other users of IPVS in the same namespace are left alone.
func TestForeignServices(t *testing.T) {
	w := newWorld(t, service.NAT)
	theirs := recordOf(frontend(service.NAT, service.RoundRobin, vip4, 80, 80), 0, 0)
	theirs.flags = 0
	must(t, w.plane.apply(changes(nil, theirs)))
	w.open(Config{})
	if got := w.listed(); len(got) != 0 {
		t.Errorf("lists %v", got)
	}
	f := frontend(service.NAT, service.RoundRobin, vip4, 80, 80)
	if err := w.plane.Upsert(f); err == nil || !strings.Contains(err.Error(), "ipvsadm -D") {
		t.Errorf("took it over: %v", err)
	}
	must(t, w.plane.Delete(f.Key))
	f.Port = 81
	w.upsert(f)
	must(t, w.plane.Detach())
	w.plane = nil
	w.open(Config{})
	must(t, w.plane.eachService(func(v virtual, _ load) {
		if v != theirs.virtual {
			t.Errorf("is left: %+v", v)
		}
		theirs.scheduler = ""
	}))
	if theirs.scheduler != "" {
		t.Error("theirs is gone")
	}
}

// What another process changes is visible in List, and the next Upsert repairs it.
func TestHeals(t *testing.T) {
	w := newWorld(t, service.NAT)
	f, full := frontend(service.NAT, service.RoundRobin, vip4, 80, 80), frontend(service.FullNAT, service.RoundRobin, vip6, 80, 80)
	part := frontend(service.NAT, service.RoundRobin, vip4, 80, 0)
	part.Port, part.Last = 8000, 9000
	full.Deny = []netip.Prefix{netip.MustParsePrefix("fd02::9/128")}
	part.Allow = []netip.Prefix{netip.MustParsePrefix("192.168.0.0/24"), netip.MustParsePrefix("0.0.0.0/0")}
	for name, harm := range map[string]func() error{
		"a service": func() error {
			return w.plane.apply([]message{aboutService(cmdDelService, 0, recordOf(f, 0, 0).serviceID)})
		},
		"a server": func() error {
			r := recordOf(f, 0, 0)
			return w.plane.apply([]message{destMessage(cmdDelDest, r.serviceID, r.servers[0])})
		},
		"a weight": func() error { r := recordOf(f, 0, 0); return w.plane.apply(changes(&r, recordOf(drained(f, 0), 0, 0))) },
		"a method": func() error {
			o := f
			o.Method = service.DR
			r := recordOf(f, 0, 0)
			return w.plane.apply(changes(&r, recordOf(o, 0, 0))[:1])
		},
		"a route":       func() error { return w.plane.removeRoute(vip4) },
		"the marks":     func() error { return w.inBalancer("iptables-legacy", "-t", "mangle", "-F", markChain) },
		"the jump":      func() error { return w.inBalancer("iptables-legacy", "-t", "mangle", "-F", "PREROUTING") },
		"who is denied": func() error { return w.inBalancer("ip6tables-legacy", "-t", "mangle", "-F", guardChain+"-1") },
		"who is let in": func() error { return w.inBalancer("iptables-legacy", "-t", "mangle", "-D", guardChain+"-1", "1") },
		"the guards":    func() error { return w.inBalancer("iptables-legacy", "-t", "mangle", "-F", guardChain) },
		"the fullnats":  func() error { return w.inBalancer("ip6tables-legacy", "-t", "nat", "-F", natChain) },
	} {
		all := []desired.Frontend{f, full, part}
		for _, f := range all {
			w.upsert(f)
		}
		must(t, harm())
		programmed := w.listed()
		if slices.ContainsFunc(all, func(f desired.Frontend) bool { return !programmed[f.Key].Same(canonical(f)) }) == false {
			t.Errorf("%s: List does not show the damage", name)
		}
		for _, f := range all {
			w.upsert(f)
		}
		programmed = w.listed()
		for _, f := range all {
			if !programmed[f.Key].Same(canonical(f)) {
				t.Errorf("%s was harmed: %s is not as before", name, f.Key)
			}
		}
	}
}

func (w *world) inBalancer(command ...string) error {
	return w.lab.Host("balancer").Do(func() error {
		out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
		return wrap(string(out), err)
	})
}

func TestConfig(t *testing.T) {
	w := newWorld(t, service.NAT)
	timeouts := Timeouts{TCP: 100 * time.Second, UDP: 7 * time.Second}
	w.open(Config{Timeouts: timeouts})
	asked := w.plane.socket.seq
	must(t, w.plane.setTimeouts())
	if n := w.plane.socket.seq - asked; n != 1 {
		t.Errorf("%d messages for timeouts that are right, want one question", n)
	}
	must(t, w.lab.Host("balancer").Do(func() error {
		for _, s := range sysctls {
			if text, err := os.ReadFile("/proc/sys/net/" + s.Path); err != nil || strings.TrimSpace(string(text)) != s.Value {
				t.Errorf("%s is %q (%v)", s.Path, text, err)
			}
		}
		return nil
	}))
	for want, c := range map[string]Config{
		"Timeouts.TCP":   {Timeouts: Timeouts{TCP: time.Millisecond}},
		"Sync.Interface": {Sync: Sync{Role: Master}},
		"Sync.ID":        {Sync: Sync{Interface: "eth0", ID: 256, Role: Master}},
		"Sync.Role":      {Sync: Sync{Interface: "eth0"}},
		"NetNS":          {NetNS: "/run/netns/none"},
	} {
		if _, err := Open(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A standby load balancer knows the connections of the active one.
func TestSync(t *testing.T) {
	w := newWorld(t, service.NAT)
	w.serve(80)
	must(t, w.lab.Add(t.Context(), lab.Topology{
		Hosts: []lab.HostSpec{{Name: "standby"}},
		Links: []lab.Link{{A: lab.At("standby", "eth0", "172.16.0.2/24"), B: lab.Port("net")}},
	}))
	sync := Sync{Interface: "eth0", ID: 7, Role: Master}
	w.open(Config{Sync: sync})
	sync.Role = Backup
	standby, err := Open(Config{NetNS: w.lab.Host("standby").Namespace().Path(), Sync: sync})
	must(t, err)
	defer standby.Close()
	defer standby.Detach() //nolint:errcheck // the kernel's threads hold the namespace
	f := frontend(service.NAT, service.RoundRobin, vip4, 80, 80)
	w.upsert(f)
	must(t, standby.Upsert(f))
	c := w.dial(netip.AddrPortFrom(vip4, 80))
	w.eventually(func() error {
		if _, err := c.who(); err != nil {
			return err
		}
		if n, err := alive(standby); n != 1 || err != nil {
			return fmt.Errorf("%d flows, %w", n, err)
		}
		return nil
	})
	sync.Role = Both
	w.open(Config{Sync: sync})
	running, err := w.plane.daemons()
	if err != nil || len(running) != 2 {
		t.Errorf("daemons %+v (%v), want two", running, err)
	}
	// Also if one is stopped before its thread has run.
	for range 20 {
		must(t, w.plane.stopSync())
		must(t, w.plane.setSync())
	}
	must(t, w.plane.Detach())
	w.plane = nil
}

// SCTP, for which there is no library.
func TestSCTP(t *testing.T) {
	if out, err := exec.Command("modprobe", "sctp").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w := newWorld(t, service.NAT)
	f := frontend(service.NAT, service.RoundRobin, vip4, 80, 80)
	f.Protocol = service.SCTP
	w.upsert(f)
	for i := range servers {
		name := fmt.Sprint("s", i+1)
		fd := w.sctp(name)
		must(t, unix.Bind(fd, &unix.SockaddrInet4{Port: 80}))
		must(t, unix.Listen(fd, 5))
		go func() {
			for {
				c, _, err := unix.Accept(fd)
				if err != nil {
					return
				}
				unix.Write(c, []byte(name)) //nolint:errcheck // the client would wait in vain
			}
		}()
	}
	got := map[string]int{}
	for range servers {
		fd := w.sctp("client")
		must(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: int64(patience.Seconds())}))
		must(t, unix.Connect(fd, &unix.SockaddrInet4{Port: 80, Addr: vip4.As4()}))
		answer := make([]byte, 10)
		n, err := unix.Read(fd, answer)
		must(t, err)
		got[string(answer[:n])]++
	}
	if len(got) != servers {
		t.Errorf("%v answer", got)
	}
}

func (w *world) sctp(host string) (fd int) {
	w.Helper()
	must(w, w.lab.Host(host).Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
		return err
	}))
	w.Cleanup(func() { unix.Shutdown(fd, unix.SHUT_RDWR); unix.Close(fd) })
	return fd
}

// XDP's program cannot run on the guest's kernel: in that case auto uses IPVS.
func TestNoXDPHere(t *testing.T) {
	d, err := xdp.Open(xdp.Config{Interfaces: []string{"lo"}, PinDir: "/sys/fs/bpf/none"})
	if err == nil {
		must(t, d.Detach())
		return // it runs: this is no guest
	}
	if !xdp.Impossible(err) {
		t.Errorf("auto would give up: %v", err)
	}
	if left, _ := filepath.Glob("/sys/fs/bpf/none/*"); len(left) > 0 {
		t.Errorf("left %v, which would keep IPVS away", left)
	}
}

// A client that is not allowed gets no answer, in both families and also on a range. A
// restarted agent knows the rules, and nothing is left behind.
func TestAllowAndDeny(t *testing.T) {
	w := newWorld(t, service.NAT)
	w.serve(80)
	w.serve(8001)
	for vip, client := range map[netip.Addr]string{vip4: "192.168.0.2/32", vip6: "fd02::2/128"} {
		who, port := netip.MustParsePrefix(client), netip.AddrPortFrom(vip, 80)
		f, part := frontend(service.NAT, service.RoundRobin, vip, 80, 80), frontend(service.NAT, service.RoundRobin, vip, 8000, 0)
		part.Last = 9000
		lets := func(what string, at netip.AddrPort, want bool) {
			t.Helper()
			within := patience
			if !want { // dropped packets never arrive
				within = time.Second / 2
			}
			if err := w.reach(at, within); (err == nil) != want {
				t.Errorf("%s: the client reaches %s: %v, want %v", what, at, err, want)
			}
		}
		everybody := netip.PrefixFrom(vip, 0).Masked()
		for _, c := range []struct {
			what        string
			allow, deny []netip.Prefix
			want        bool
		}{
			{"only the client", []netip.Prefix{who}, nil, true},
			{"only others", []netip.Prefix{netip.PrefixFrom(vip, vip.BitLen())}, nil, false},
			{"others and everybody", []netip.Prefix{netip.PrefixFrom(vip, vip.BitLen()), everybody}, nil, true},
			{"everybody but the client", []netip.Prefix{everybody}, []netip.Prefix{who}, false},
			{"not others", nil, []netip.Prefix{netip.PrefixFrom(vip, vip.BitLen())}, true},
			{"nobody", nil, []netip.Prefix{everybody}, false},
		} {
			f.Allow, f.Deny = c.allow, c.deny
			w.upsert(f)
			w.open(Config{})
			if got := w.listed()[f.Key]; !got.Same(canonical(f)) {
				t.Errorf("%s: lists %+v", c.what, got)
			}
			lets(c.what, port, c.want)
		}
		part.Allow = f.Deny // everybody
		w.upsert(part)
		lets("a range that lets in everybody", netip.AddrPortFrom(vip, 8001), true)
		part.Allow, part.Deny = nil, []netip.Prefix{who}
		w.upsert(part)
		lets("a range that denies it", netip.AddrPortFrom(vip, 8001), false)
		f.Deny = nil
		w.upsert(f)
		lets("a port next to such a range", port, true)
	}
	must(t, w.plane.Detach())
	w.plane = nil
	w.empty()
	w.open(Config{})
}

// reach opens a connection from the client with a timeout, and closes it.
func (w *world) reach(to netip.AddrPort, within time.Duration) error {
	ctx, cancel := context.WithTimeout(w.Context(), within)
	defer cancel()
	c, err := w.lab.Host("client").Dial(ctx, netip.Addr{}, to)
	if err != nil {
		return err
	}
	return c.Close()
}
