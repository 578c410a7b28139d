// Package l2 advertises VIPs without BGP: for each VIP, one of several members on a
// segment answers ARP and neighbor discovery, and another one takes over within a second
// when that member fails. Package elect decides who answers; this package does the I/O:
// packet sockets, hellos between members, timers.
package l2

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/l2/elect"
	"github.com/fairlead/fairlead/core/event"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/internal/udpttl"
)

// Port is the UDP port of hellos.
const Port = 7947

// A member counts as gone after 0.9 s: as with BFD, three times 300 ms caused no false
// alarms on a busy machine.
const (
	interval = 300 * time.Millisecond
	hold     = 3 * interval
)

// lookEvery is the interval at which interfaces are checked.
const lookEvery = time.Second

// maxHello is more than the size of a hello, in bytes.
const maxHello = 2048

// Config configures an Announcer.
type Config struct {
	// Interfaces are those on whose segments VIPs are answered.
	Interfaces []string
	// Self is the address by which the other members know this node.
	Self netip.Addr
	// Members are the addresses of all members, possibly including Self. Empty: this node
	// is the only member, and answers for everything.
	Members []netip.Addr
	// Password signs hellos. Without it, hellos are accepted if no router has forwarded
	// them.
	Password string
	// Events records changes of owners and members; nil for none.
	Events event.Recorder
	Log    *slog.Logger
}

// Announcer answers for the VIPs that this node owns.
type Announcer struct {
	Config
	key  []byte
	conn *net.UDPConn
	wake chan struct{}
	done chan struct{}
	wg   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	core   *elect.Core
	links  []*link
	// wanted is the last Set, refused the part of it that this node cannot answer for.
	wanted  []netip.Prefix
	refused []advertise.Answered
	// left contains addresses that this node answered for and released, with the time of
	// that.
	left map[netip.Addr]time.Time
	// armed is when the timer fires next, looked when interfaces were last checked.
	armed, looked time.Time
}

var _ advertise.Announcer = (*Announcer)(nil)

// New starts to send hellos to the members; nothing is answered yet.
func New(c Config) (*Announcer, error) {
	a := &Announcer{
		Config: c, key: []byte(c.Password), left: map[netip.Addr]time.Time{}, wake: make(chan struct{}, 1), done: make(chan struct{}),
		core: elect.New(elect.Config{Self: c.Self, Interval: interval, Hold: hold, Random: random}),
	}
	var err error
	if a.conn, err = openHellos(c.Self); err != nil {
		return nil, err
	}
	for _, name := range c.Interfaces {
		a.links = append(a.links, &link{name: name})
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.look(time.Now())
	for _, l := range a.links {
		if l.fault != nil {
			a.closeAll()
			return nil, fmt.Errorf("layer 2: %w", l.fault)
		}
	}
	a.core.SetMembers(time.Now(), c.Members)
	a.perform()
	a.wg.Add(2)
	go a.listen(a.conn)
	go a.run()
	return a, nil
}

func openHellos(self netip.Addr) (*net.UDPConn, error) {
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(self, Port)))
	if err != nil {
		return nil, fmt.Errorf("layer 2: hellos on %s, UDP port %d: %w", self, Port, err)
	}
	if err := errors.Join(udpttl.Expect(c, self.Is4()), udpttl.SendFar(c, self.Is4())); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func random() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return binary.NativeEndian.Uint64(b[:])
}

// Set sets the addresses that this node can answer for. When it returns, hellos to the
// other members have been sent.
func (a *Announcer) Set(routes []route.Route) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return errors.New("layer 2 is closed")
	}
	owned := a.owned()
	a.wanted = nil
	for _, r := range routes {
		a.wanted = append(a.wanted, r.Prefix)
	}
	now := time.Now()
	a.offer(now)
	for addr := range owned {
		if !a.core.Owns(addr) {
			a.left[addr] = now
		}
	}
	for _, p := range a.wanted {
		delete(a.left, p.Addr())
	}
	a.perform()
	return nil
}

// owned returns the addresses that this node answers for.
func (a *Announcer) owned() map[netip.Addr]bool {
	owned := map[netip.Addr]bool{}
	for _, p := range a.wanted {
		if a.core.Owns(p.Addr()) {
			owned[p.Addr()] = true
		}
	}
	return owned
}

// Withdrawing lists the addresses that this node has released and that the member whose
// turn it is has not taken yet: until it announces them, the segment still sends packets
// here. A silent member is only waited for until it counts as gone. If no other member
// offers an address, nobody will ever announce it.
func (a *Announcer) Withdrawing() (all []advertise.Withdrawal) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for addr, since := range a.left {
		taken, awaited := a.core.Heir(addr)
		if a.closed || taken.IsValid() || !awaited.IsValid() {
			delete(a.left, addr)
			continue
		}
		all = append(all, advertise.Withdrawal{
			Prefix: netip.PrefixFrom(addr, addr.BitLen()), From: "layer 2 member " + awaited.String(), Since: since, Reason: "it has not claimed the address yet",
		})
	}
	slices.SortFunc(all, advertise.Withdrawal.Compare)
	return all
}

// SetMembers sets the members. If they know this node by another of its addresses than
// Self, it adopts that address.
func (a *Announcer) SetMembers(members []netip.Addr) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || slices.Equal(members, a.Members) {
		return nil
	}
	if self := ownAmong(members); self.IsValid() && !slices.Contains(members, a.Self) {
		c, err := openHellos(self)
		if err != nil {
			return err
		}
		a.conn.Close()
		a.conn, a.Self = c, self
		a.core.SetSelf(self)
		a.wg.Add(1)
		go a.listen(c)
	}
	a.Members = slices.Clone(members)
	a.core.SetMembers(time.Now(), slices.DeleteFunc(slices.Clone(members), func(m netip.Addr) bool { return m.Is4() != a.Self.Is4() }))
	a.perform()
	return nil
}

// ownAmong returns the first address that belongs to this node.
func ownAmong(addrs []netip.Addr) netip.Addr {
	own, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		for _, o := range own {
			if p, err := netip.ParsePrefix(o.String()); err == nil && p.Addr().Unmap() == a {
				return a
			}
		}
	}
	return netip.Addr{}
}

// offer passes the addresses that can be answered for to the core.
func (a *Announcer) offer(now time.Time) {
	var addresses []netip.Addr
	a.refused = nil
	for _, p := range a.wanted {
		if why := a.impossible(p); why != "" {
			a.refused = append(a.refused, advertise.Answered{Prefix: p, State: "rejected", Reason: why, Problem: true})
			continue
		}
		addresses = append(addresses, p.Addr())
	}
	for _, l := range a.links {
		if l.index == 0 || l.fault != nil {
			continue
		}
		if err := l.groups.set(l.index, addresses); err != nil {
			a.Log.Error("layer 2: neighbor solicitations for IPv6 VIPs may not reach this node", "interface", l.name, "error", err)
		}
	}
	a.core.SetAddresses(now, addresses)
}

func (a *Announcer) impossible(p netip.Prefix) string {
	if !p.IsSingleIP() {
		return "layer 2 advertises single addresses only: advertise this prefix with BGP, or set the Service's advertise-prefixes to its VIP only"
	}
	for _, l := range a.links {
		if slices.Contains(l.addrs, p.Addr()) {
			return fmt.Sprintf("it is this node's own address on %s, for which its kernel always answers: remove it from the interface", l.name)
		}
	}
	return ""
}

// Peers returns the other members.
func (a *Announcer) Peers() (peers []advertise.Peer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range a.core.Members() {
		p := advertise.Peer{Address: m.Address.String(), State: "silent", Since: m.Since, LastError: m.Fault, Received: m.Received, Sent: m.Sent}
		if m.Alive {
			p.State = "alive"
		}
		peers = append(peers, p)
	}
	return peers
}

// Answered describes every address of the last Set, sorted.
func (a *Announcer) Answered() []advertise.Answered {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := slices.Clone(a.refused)
	now := time.Now()
	for _, s := range a.core.Addresses(now) {
		all = append(all, advertise.Answered{
			Prefix: netip.PrefixFrom(s.Address, s.Address.BitLen()), State: string(s.State), Owner: s.Owner, Reason: s.Why,
			Since: s.Since, Problem: a.core.Strange(now, s.Address),
		})
	}
	slices.SortFunc(all, func(a, b advertise.Answered) int { return a.Prefix.Compare(b.Prefix) })
	return all
}

// Close informs the other members that this one does not answer for anything any more.
func (a *Announcer) Close() error {
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return nil
	}
	a.closed = true
	a.core.SetAddresses(time.Now(), nil)
	a.perform()
	close(a.done)
	err := a.closeAll()
	a.mu.Unlock()
	a.wg.Wait()
	return err
}

func (a *Announcer) closeAll() error {
	for _, l := range a.links {
		l.close()
	}
	return a.conn.Close()
}
