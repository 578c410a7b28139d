package l2

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/advertise/l2/packet"
	"github.com/fairlead/fairlead/advertise/l2/wire"
	"github.com/fairlead/fairlead/internal/sysctl"
)

// link is an interface on whose segment VIPs are answered. It follows the state of the
// interface: while that is missing or down, there is nothing to answer.
type link struct {
	name    string
	index   int // 0 if there is no such interface
	mac     wire.MAC
	running bool
	addrs   []netip.Addr
	// fault is why nothing can be sent or received there, or nil.
	fault   error
	sockets []*os.File
	groups  groups
}

// look updates a link to the state of its interface, and reports whether anything has
// changed. Received frames are passed to receive.
func (l *link) look(receive func(*link, wire.Message)) (changed bool) {
	iface, err := net.InterfaceByName(l.name)
	if err == nil && len(iface.HardwareAddr) != len(l.mac) {
		err = fmt.Errorf("interface %s has no Ethernet address: layer 2 is for Ethernet", l.name)
	}
	if err != nil {
		changed = l.running || l.index != 0
		l.close()
		l.index, l.running, l.fault = 0, false, fmt.Errorf("interface %s: %w", l.name, err)
		return changed
	}
	mac, running := wire.MAC(iface.HardwareAddr), iface.Flags&net.FlagRunning != 0
	changed = mac != l.mac || running != l.running || iface.Index != l.index
	if iface.Index != l.index || l.fault != nil {
		l.close()
		l.index = iface.Index
		l.fault = l.open(receive)
	}
	l.mac, l.running = mac, running && l.fault == nil
	if addrs := ownAddrs(iface); !slices.Equal(addrs, l.addrs) {
		l.addrs, changed = addrs, true
	}
	return changed
}

func ownAddrs(iface *net.Interface) (own []netip.Addr) {
	all, _ := iface.Addrs()
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			own = append(own, p.Addr().Unmap())
		}
	}
	return own
}

// open opens the sockets: one for ARP, one for neighbor discovery.
func (l *link) open(receive func(*link, wire.Message)) error {
	if err := sysctl.SetAll(l.sysctls()); err != nil {
		return err
	}
	for _, etherType := range []uint16{wire.EtherTypeARP, wire.EtherTypeIPv6} {
		s, err := packet.Open(l.index, etherType)
		if err != nil {
			l.close()
			return fmt.Errorf("packets of interface %s: %w", l.name, err)
		}
		l.sockets = append(l.sockets, s)
		go l.receive(s, receive)
	}
	return nil
}

// sysctls prevent the kernel from answering for a VIP that it has on another interface
// (for dr or IPVS): this package decides who answers.
func (l *link) sysctls() (todo []sysctl.Setting) {
	for _, s := range []sysctl.Setting{
		{Path: "arp_ignore", Value: "1", Why: "otherwise the kernel answers ARP for VIPs on lo even if another node owns them"},
		{Path: "arp_announce", Value: "2", Why: "otherwise the kernel announces VIPs on lo in ARP requests"},
	} {
		own := "ipv4/conf/" + l.name + "/" + s.Path
		// The kernel uses the larger one.
		if max(sysctl.Read("ipv4/conf/all/"+s.Path), sysctl.Read(own)) < s.Value {
			s.Path = own
			todo = append(todo, s)
		}
	}
	return todo
}

// receive returns when the socket is closed.
func (l *link) receive(s *os.File, deliver func(*link, wire.Message)) {
	frame := make([]byte, 2048)
	for {
		n, err := s.Read(frame)
		switch {
		case errors.Is(err, unix.ENETDOWN): // reported once; it continues when the interface is up
			continue
		case err != nil:
			return
		}
		if m, err := wire.Parse(frame[:n]); err == nil {
			deliver(l, m)
		}
	}
}

// send sends a frame of this package. A failure is not retried here: announcements are
// repeated, and hosts repeat their queries.
func (l *link) send(frame []byte) {
	if !l.running {
		return
	}
	s := l.sockets[0]
	if frame[12] != wire.EtherTypeARP>>8 || frame[13] != wire.EtherTypeARP&0xff {
		s = l.sockets[1]
	}
	_, _ = s.Write(frame)
}

func (l *link) close() {
	for _, s := range l.sockets {
		s.Close()
	}
	l.sockets = nil
	l.groups.close()
}
