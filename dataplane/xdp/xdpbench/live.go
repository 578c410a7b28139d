// Package xdpbench measures the balancer's program: live, as frames that come
// in by a veth and leave by it again. It is what fairlead bench runs; nothing
// else of Fairlead needs it.
package xdpbench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/xdp"
	"github.com/fairlead/fairlead/dataplane/xdp/internal/measure"
	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/service"
)

// The network of the live measurement:
//
//	namespace generator           namespace balancer
//	  net0 ────────────────────── eth0  172.16.0.2/24, gateway 172.16.0.1
//
// What the generator sends enters the balancer by eth0; what that sends back
// ends in the sink at net0. All of it runs on one processor.
const (
	ownAddr     = "172.16.0.2"
	gatewayAddr = "172.16.0.1"
	vipAddr     = "10.64.0.1"
	firstClient = "11.0.0.0"
	servers     = 100
	ringSize    = 65537
	pinDir      = "/sys/fs/bpf/live"
)

var (
	macGenerator = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	macBalancer  = net.HardwareAddr{2, 0, 0, 0, 0, 2}
)

// Live is the two namespaces with the programs.
type Live struct {
	generator, balancer *netns.NS
	programs            liveObjects
	net0, eth0          int
	sink                link.Link
	under               io.Closer // what is attached to eth0
}

// NewLive makes the namespaces. It needs a sandbox.
func NewLive() (*Live, error) {
	l := &Live{}
	if err := l.make(); err != nil {
		return nil, errors.Join(fmt.Errorf("live: %w", err), l.Close())
	}
	return l, nil
}

func (l *Live) make() (err error) {
	if l.generator, err = netns.Create("generator"); err != nil {
		return err
	}
	if l.balancer, err = netns.Create("balancer"); err != nil {
		return err
	}
	if err := loadLiveObjects(&l.programs, nil); err != nil {
		return err
	}
	if err := l.balancer.Do(l.wire); err != nil {
		return err
	}
	return l.generator.Do(func() error {
		net0, err := netlink.LinkByName("net0")
		if err != nil {
			return err
		}
		l.net0 = net0.Attrs().Index
		if err := netlink.LinkSetUp(net0); err != nil {
			return err
		}
		l.sink, err = link.AttachXDP(link.XDPOptions{Program: l.programs.Sink, Interface: l.net0, Flags: link.XDPDriverMode})
		return err
	})
}

// wire makes the veth, in the balancer's namespace.
func (l *Live) wire() error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = "eth0", macBalancer
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "net0", PeerHardwareAddr: macGenerator, PeerNamespace: netlink.NsFd(l.generator.FD())}
	if err := netlink.LinkAdd(veth); err != nil {
		return err
	}
	eth0, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	l.eth0 = eth0.Attrs().Index
	addr, err := netlink.ParseAddr(ownAddr + "/24")
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return netlink.AddrAdd(eth0, addr) },
		func() error { return netlink.LinkSetUp(eth0) },
		func() error {
			return netlink.NeighSet(&netlink.Neigh{LinkIndex: l.eth0, IP: net.ParseIP(gatewayAddr), HardwareAddr: macGenerator, State: netlink.NUD_PERMANENT})
		},
		func() error {
			return netlink.RouteAdd(&netlink.Route{LinkIndex: l.eth0, Gw: net.ParseIP(gatewayAddr)})
		},
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// Swap puts a program that only swaps the MAC addresses in the balancer's
// place: the reference.
func (l *Live) Swap() error {
	if err := l.clear(); err != nil {
		return err
	}
	return l.balancer.Do(func() error {
		at, err := link.AttachXDP(link.XDPOptions{Program: l.programs.Swap, Interface: l.eth0, Flags: link.XDPDriverMode})
		if err == nil {
			l.under = at
		}
		return err
	})
}

// detaching takes a data plane out of the kernel when it is closed.
type detaching struct {
	*xdp.DataPlane
	in *netns.NS
}

func (d detaching) Close() error { return errors.Join(d.in.Do(d.Detach), os.RemoveAll(pinDir)) }

// Balance puts the balancer there, with one frontend of a hundred servers.
func (l *Live) Balance(f dataplane.Frontend) error {
	if err := l.clear(); err != nil {
		return err
	}
	return l.balancer.Do(func() error {
		d, err := xdp.Open(xdp.Config{
			Interfaces: []string{"eth0"}, PinDir: pinDir, SourceV4: netip.MustParseAddr(ownAddr), Mode: xdp.Native,
		})
		if err != nil {
			return err
		}
		l.under = detaching{d, l.balancer}
		return d.Upsert(f)
	})
}

// tunnelFrontend is what Balance is given for the tunnel rows.
func tunnelFrontend() dataplane.Frontend {
	f := dataplane.Frontend{
		Key:    service.Key{VIP: netip.MustParseAddr(vipAddr), Port: 80, Protocol: service.TCP},
		Method: service.Tunnel, Encapsulation: service.IPIP, Scheduler: service.Maglev, Survival: service.SecondChance, RingSize: ringSize,
	}
	for i := range servers {
		addr := netip.AddrFrom4([4]byte{172, 20, 0, byte(i + 1)})
		f.Backends = append(f.Backends, service.Backend{Addr: netip.AddrPortFrom(addr, 80), Weight: 1})
	}
	return f
}

func (l *Live) clear() error {
	if l.under == nil {
		return nil
	}
	err := l.under.Close()
	l.under = nil
	return err
}

// Close takes everything away.
func (l *Live) Close() error {
	errs := []error{l.clear()}
	if l.sink != nil {
		errs = append(errs, l.sink.Close())
	}
	if l.programs.Generate != nil {
		errs = append(errs, l.programs.Close())
	}
	for _, ns := range []*netns.NS{l.generator, l.balancer} {
		if ns != nil {
			errs = append(errs, ns.Close())
		}
	}
	return errors.Join(errs...)
}

// Run is what one run gave.
type Run struct {
	// PerFrame is the processor's time a frame, in nanoseconds: generator,
	// balancer and sink together.
	PerFrame float64
	// Sent and Sunk count frames; Bytes is the length of one that came back.
	Sent, Sunk uint64
	Bytes      float64
}

// batch is how many frames the kernel sends before it lets the receivers
// work; a veth's ring holds 256.
const batch = 64

// Run sends so many frames of so many flows (a power of two).
func (l *Live) Run(frames uint32, flows uint64) (r Run, err error) {
	err = l.generator.Do(func() error {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		unpin, err := measure.Pin()
		if err != nil {
			return err
		}
		defer unpin()
		r, err = l.send(frames, flows)
		return err
	})
	return r, err
}

func (l *Live) send(frames uint32, flows uint64) (r Run, err error) {
	state := liveLive{Flows: flows - 1, Out: uint32(l.net0)}
	frame := tcpFrame()
	for i := range state.Frame {
		state.Frame[i] = binary.NativeEndian.Uint64(frame[i*8:])
	}
	if err := l.programs.Live.Put(uint32(0), &state); err != nil {
		return r, err
	}
	frames0, bytes0, err := l.sunk()
	if err != nil {
		return r, err
	}
	began, err := measure.ThreadTime()
	if err != nil {
		return r, err
	}
	_, err = l.programs.Generate.Run(&ebpf.RunOptions{Data: frame, Repeat: frames, Flags: unix.BPF_F_TEST_XDP_LIVE_FRAMES, BatchSize: batch})
	if err != nil {
		return r, fmt.Errorf("send live frames: %w", err)
	}
	ended, err := measure.ThreadTime()
	if err != nil {
		return r, err
	}
	frames1, bytes1, err := l.sunk()
	if err != nil {
		return r, err
	}
	if err := l.programs.Live.Lookup(uint32(0), &state); err != nil {
		return r, err
	}
	r.Sent, r.Sunk = state.Turn, frames1-frames0
	if r.Sunk == 0 {
		return r, errors.New("no frame came back")
	}
	r.PerFrame = float64((ended - began).Nanoseconds()) / float64(r.Sunk)
	r.Bytes = float64(bytes1-bytes0) / float64(r.Sunk)
	return r, nil
}

// sunk reads the sink's counters.
func (l *Live) sunk() (frames, bytes uint64, err error) {
	var sums [2]uint64
	for i := range sums {
		var per []uint64
		if err := l.programs.Sunk.Lookup(uint32(i), &per); err != nil {
			return 0, 0, err
		}
		for _, n := range per {
			sums[i] += n
		}
	}
	return sums[0], sums[1], nil
}

// tcpFrame is an established connection's packet to the VIP: 64 bytes, ACK.
func tcpFrame() []byte {
	b := make([]byte, 64)
	copy(b, macBalancer)
	copy(b[6:], macGenerator)
	binary.BigEndian.PutUint16(b[12:], 0x0800)
	ip := b[14:]
	ip[0], ip[8], ip[9] = 0x45, 64, unix.IPPROTO_TCP
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	copy(ip[12:], netip.MustParseAddr(firstClient).AsSlice())
	copy(ip[16:], netip.MustParseAddr(vipAddr).AsSlice())
	tcp := ip[20:]
	binary.BigEndian.PutUint16(tcp, 1024)
	binary.BigEndian.PutUint16(tcp[2:], 80)
	tcp[12], tcp[13] = 5<<4, 0x10
	return b
}
