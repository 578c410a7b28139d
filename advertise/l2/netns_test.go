package l2

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/l2/packet"
	"github.com/fairlead/fairlead/advertise/l2/wire"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/labtest"
	"github.com/fairlead/fairlead/lab/testkit"
)

const within = 30 * time.Second

// segment is an Ethernet segment with three members, a client, and a host that uses
// addresses it should not:
//
//	n1 10.0.0.1 ──┐
//	n2 10.0.0.2 ──┤ switch ── client   10.0.0.9
//	n3 10.0.0.3 ──┘        ── intruder 10.0.0.8
//
// All have corresponding fd00:: addresses. The VIPs are on lo of every member, as on
// backends of method dr: TCP to them is answered by whichever member receives the frames.
type segment struct {
	t *testing.T
	*lab.Lab
	vips    []netip.Addr
	members map[int]*player
	// sockets are the client's for ARP and neighbor discovery; seen receives the answers.
	sockets [2]*os.File
	seen    chan wire.Message
	mac     wire.MAC
}

const vipsEach = 8 // of each family

func newSegment(t *testing.T) *segment {
	t.Helper()
	s := &segment{t: t, members: map[int]*player{}, seen: make(chan wire.Message, 10000)}
	var onLo []string
	for i := range vipsEach {
		for _, text := range []string{fmt.Sprintf("10.0.0.%d", 100+i), fmt.Sprintf("fd00::%d", 100+i)} {
			a := netip.MustParseAddr(text)
			s.vips = append(s.vips, a)
			onLo = append(onLo, netip.PrefixFrom(a, a.BitLen()).String())
		}
	}
	top := lab.Topology{Switches: []lab.SwitchSpec{{Name: "switch"}}}
	for name, n := range map[string]int{"n1": 1, "n2": 2, "n3": 3, "client": 9, "intruder": 8} {
		h := lab.HostSpec{Name: name}
		if n <= 3 {
			h.Loopback = onLo
		}
		top.Hosts = append(top.Hosts, h)
		top.Links = append(top.Links, lab.Link{
			A: lab.At(name, "eth0", fmt.Sprintf("10.0.0.%d/24", n), fmt.Sprintf("fd00::%d/64", n)), B: lab.Port("switch"),
		})
	}
	s.Lab = labtest.Build(t, top)
	s.openClient()
	return s
}

func (s *segment) openClient() {
	s.t.Helper()
	dev, err := s.Host("client").Netlink().LinkByName("eth0")
	if err != nil {
		s.t.Fatal(err)
	}
	s.mac = wire.MAC(dev.Attrs().HardwareAddr)
	for i, kind := range []uint16{wire.EtherTypeARP, wire.EtherTypeIPv6} {
		testkit.Do(s.t, s.Host("client").Namespace(), func() (err error) {
			s.sockets[i], err = packet.Open(dev.Attrs().Index, kind)
			return err
		})
		s.t.Cleanup(func() { s.sockets[i].Close() })
		go (&link{}).receive(s.sockets[i], func(_ *link, m wire.Message) { s.seen <- m })
	}
}

func (s *segment) self(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}) }

func (s *segment) prefixes() (all prefixes) {
	for _, a := range s.vips {
		all = append(all, netip.PrefixFrom(a, a.BitLen()))
	}
	return all
}

// start starts or restarts a member.
func (s *segment) start(n int) *player {
	s.t.Helper()
	s.members[n] = enact(s.t, s.Host(fmt.Sprint("n", n)), part{
		Self: s.self(n), Members: []netip.Addr{s.self(1), s.self(2), s.self(3)}, Password: "open sesame", Prefixes: s.prefixes(),
	})
	return s.members[n]
}

// owners returns which member answers for each VIP, according to the members. It is an
// error if there are two or none, and also if a member has not received the offers of
// every other, because more VIPs may still move.
func (s *segment) owners(members ...int) (map[netip.Addr]int, error) {
	all := map[netip.Addr]int{}
	for _, n := range members {
		for _, a := range s.members[n].Query().Answered {
			if len(members) > 1 && !strings.Contains(a.Reason, fmt.Sprintf("of %d members", len(members))) {
				return nil, fmt.Errorf("n%d: %+v", n, a)
			}
			if a.State != "owner" {
				continue
			}
			if o := all[a.Prefix.Addr()]; o != 0 {
				return nil, fmt.Errorf("%s: both n%d and n%d are the owner", a.Prefix, o, n)
			}
			all[a.Prefix.Addr()] = n
		}
	}
	if len(all) != len(s.vips) {
		return nil, fmt.Errorf("%d of %d VIPs have an owner", len(all), len(s.vips))
	}
	return all, nil
}

// settled waits for every VIP to have one owner among the members.
func (s *segment) settled(members ...int) (owners map[netip.Addr]int) {
	s.t.Helper()
	testkit.Eventually(s.t, within, func() (err error) {
		owners, err = s.owners(members...)
		return err
	})
	return owners
}

// oneAnswers checks that exactly one member answers for every VIP. A member that got no
// CPU time may have been considered dead, so that two answer for a moment; that must end.
func (s *segment) oneAnswers() {
	s.t.Helper()
	testkit.Eventually(s.t, within, func() error {
		all, err := s.askAll(10)
		if err == nil && len(all) != len(s.vips) {
			err = fmt.Errorf("%d of %d VIPs are answered for", len(all), len(s.vips))
		}
		return err
	})
}

// askAll queries every VIP several times, like a host with empty tables, and returns who
// answers for each.
func (s *segment) askAll(rounds int) (map[netip.Addr]wire.MAC, error) {
	s.t.Helper()
	all := map[netip.Addr]wire.MAC{}
	for range rounds {
		for len(s.seen) > 0 {
			<-s.seen
		}
		for _, vip := range s.vips {
			// A probe is answered like any other query, and changes no tables.
			socket := s.sockets[0]
			if vip.Is6() {
				socket = s.sockets[1]
			}
			if _, err := socket.Write(wire.Probe(vip, s.mac)); err != nil {
				s.t.Fatal(err)
			}
		}
		time.Sleep(50 * time.Millisecond)
		for len(s.seen) > 0 {
			m := <-s.seen
			if m.Asks || !slices.Contains(s.vips, m.Target) {
				continue
			}
			if first, ok := all[m.Target]; ok && first != m.From {
				return all, fmt.Errorf("%s: both %s and %s answer", m.Target, first, m.From)
			}
			all[m.Target] = m.From
		}
	}
	return all, nil
}

// who connects to a VIP and returns the member to which it is connected.
func (s *segment) who(vip netip.Addr) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 250*time.Millisecond)
	defer cancel()
	c, err := s.Host("client").Dial(ctx, netip.Addr{}, netip.AddrPortFrom(vip, 80))
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Second))
	b, err := io.ReadAll(c)
	return strings.TrimSpace(string(b)), err
}

// reach waits until the client is served by a VIP's owner, and returns for how long it
// was served by nobody.
func (s *segment) reach(vip netip.Addr, owner int, since time.Time) time.Duration {
	s.t.Helper()
	testkit.Eventually(s.t, within, func() error {
		who, err := s.who(vip)
		if err == nil && who != s.self(owner).String() {
			err = fmt.Errorf("%s serves %s, want n%d", who, vip, owner)
		}
		return err
	})
	return time.Since(since)
}

func TestSegment(t *testing.T) {
	s := newSegment(t)
	began := time.Now()
	for n := 1; n <= 3; n++ {
		s.start(n)
	}
	before := s.settled(1, 2, 3)
	t.Logf("all VIPs have an owner after %s", time.Since(began))
	if count := slices.Compact(slices.Sorted(maps.Values(before))); len(count) != 3 {
		t.Errorf("only members %v own anything", count)
	}
	s.oneAnswers()
	for _, vip := range s.vips {
		s.reach(vip, before[vip], time.Now())
	}

	// Killed: the VIPs of n2 are taken over, and the client, whose tables contain the
	// Ethernet address of n2, is informed.
	lost := slices.DeleteFunc(slices.Clone(s.vips), func(a netip.Addr) bool { return before[a] != 2 })
	killed := time.Now()
	if err := s.members[2].Kill(); err != nil {
		t.Fatal(err)
	}
	<-s.members[2].Done()
	s.takenOver(before, lost, killed, "SIGKILL")
	began = time.Now()
	s.start(2)
	s.settledAs(before)
	t.Logf("back with all that it had %s after its start", time.Since(began))

	// The link is cut: the same happens, and both sides answer for everything.
	cut := time.Now()
	if err := s.Cut("n2", "eth0"); err != nil {
		t.Fatal(err)
	}
	s.takenOver(before, lost, cut, "a link cut")
	s.settled(2)
	restored := time.Now()
	if err := s.Restore("n2", "eth0"); err != nil {
		t.Fatal(err)
	}
	s.settledAs(before)
	t.Logf("one owner each %s after the link was restored", time.Since(restored))
	for _, vip := range s.vips {
		s.reach(vip, before[vip], restored)
	}
	s.oneAnswers()

	// It withdraws: nobody has to wait.
	said := time.Now()
	s.members[2].Send(prefixes{})
	s.takenOver(before, lost, said, "a withdrawal")
}

// takenOver waits until the others have the VIPs of n2, and checks that nothing else has
// moved.
func (s *segment) takenOver(before map[netip.Addr]int, lost []netip.Addr, since time.Time, what string) {
	s.t.Helper()
	var after map[netip.Addr]int
	testkit.Eventually(s.t, within, func() (err error) {
		after, err = s.owners(1, 3)
		for vip, n := range after {
			if before[vip] != 2 && before[vip] != n {
				err = fmt.Errorf("%s moved to n%d from n%d, which is healthy", vip, n, before[vip])
			}
		}
		return err
	})
	took := time.Since(since)
	for _, vip := range lost {
		s.reach(vip, after[vip], since)
	}
	s.t.Logf("%d VIPs taken over %s after %s; the last client served %s after it", len(lost), took, what, time.Since(since))
}

// settledAs waits for each VIP to be where it was.
func (s *segment) settledAs(before map[netip.Addr]int) {
	s.t.Helper()
	testkit.Eventually(s.t, within, func() error {
		now, err := s.owners(1, 2, 3)
		if err == nil && !maps.Equal(now, before) {
			err = fmt.Errorf("owners %v, were %v", now, before)
		}
		return err
	})
}

// Another host has two of the VIPs. They are rejected by name, and taken when they are
// free.
func TestAddressesInUse(t *testing.T) {
	s := newSegment(t)
	// On hosts without a member, the kernel answers for the addresses on lo.
	if err := s.Remove("n2", "n3"); err != nil {
		t.Fatal(err)
	}
	intruder, err := s.Host("intruder").Netlink().LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	taken := s.vips[:2]
	for _, a := range taken {
		if err := addAddr(s.Host("intruder"), intruder, a); err != nil {
			t.Fatal(err)
		}
	}
	s.start(1)
	mac := intruder.Attrs().HardwareAddr.String()
	state := func(i int) (got advertise.Answered) {
		for _, a := range s.members[1].Query().Answered {
			if a.Prefix.Addr() == s.vips[i] {
				return a
			}
		}
		t.Fatalf("%s is not reported", s.vips[i])
		return got
	}
	for i := range s.vips {
		testkit.Eventually(t, within, func() error {
			switch got := state(i); {
			case i < len(taken) && (got.State != "conflict" || !got.Problem || !strings.HasPrefix(got.Reason, mac+" already has the address")),
				i >= len(taken) && got.State != "owner":
				return fmt.Errorf("%+v", got)
			}
			return nil
		})
	}
	if err := s.Remove("intruder"); err != nil {
		t.Fatal(err)
	}
	s.settled(1)
}

// Addresses that cannot be answered for are rejected by name.
func TestRefusals(t *testing.T) {
	s := newSegment(t)
	one := s.start(1)
	all := append(s.prefixes(), netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("10.0.0.1/32"), netip.MustParsePrefix("fd00::1/128"))
	refused := map[string]string{}
	for _, a := range one.Send(all).Answered {
		if a.State == "rejected" {
			refused[a.Prefix.String()] = a.Reason
		}
	}
	for prefix, want := range map[string]string{
		"10.1.0.0/16": "single addresses only", "10.0.0.1/32": "this node's own address on eth0", "fd00::1/128": "this node's own address on eth0",
	} {
		if !strings.Contains(refused[prefix], want) || len(refused) != 3 {
			t.Errorf("%s: %q, want %q", prefix, refused[prefix], want)
		}
	}
	ns := s.Host("n3").Namespace()
	testkit.Do(t, ns, func() error {
		for want, c := range map[string]Config{
			"no such network interface": {Interfaces: []string{"eth9"}, Self: s.self(3)},
			"has no Ethernet address":   {Interfaces: []string{"lo"}, Self: s.self(3)},
			"UDP port 7947":             {Interfaces: []string{"eth0"}, Self: s.self(1)},
		} {
			if a, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, %v; want %q", a, err, want)
			}
		}
		return nil
	})
}

// Two members that reject each other's hellos do not both answer if one was first: the
// other one finds the addresses in use.
func TestOtherPassword(t *testing.T) {
	s := newSegment(t)
	if err := s.Remove("n3"); err != nil { // its kernel answers for the addresses on lo
		t.Fatal(err)
	}
	one := s.start(1)
	two := enact(t, s.Host("n2"), part{Self: s.self(2), Members: []netip.Addr{s.self(1)}, Password: "guess"})
	s.settled(1)
	two.Send(s.prefixes())
	testkit.Eventually(t, within, func() error {
		for _, a := range two.Query().Answered {
			if a.State != "conflict" {
				return fmt.Errorf("%+v", a)
			}
		}
		for _, p := range one.Query().Peers {
			if p.Address == s.self(2).String() && p.State == "silent" && strings.Contains(p.LastError, "another password") {
				return nil
			}
		}
		return fmt.Errorf("peers %+v", one.Query().Peers)
	})
	s.oneAnswers()
}

// The members are set while it is running, and know it by a different address than the
// one it started with.
func TestMembersComeLater(t *testing.T) {
	s := newSegment(t)
	one := enact(t, s.Host("n1"), part{Self: netip.MustParseAddr("fd00::1"), Later: []netip.Addr{s.self(1), s.self(2), netip.MustParseAddr("fd00::3")}})
	two := enact(t, s.Host("n2"), part{Self: s.self(2), Members: []netip.Addr{s.self(1), s.self(2)}})
	testkit.Eventually(t, within, func() error {
		for _, a := range []*player{one, two} {
			if peers := a.Query().Peers; len(peers) != 1 || peers[0].State != "alive" {
				return fmt.Errorf("peers %+v", peers)
			}
		}
		return nil
	})
}

func addAddr(h *lab.Host, dev netlink.Link, a netip.Addr) error {
	return h.Netlink().AddrAdd(dev, &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}})
}
