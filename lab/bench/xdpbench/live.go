// Package xdpbench measures the BPF programs in two ways: packet by packet, compared with
// lower bounds for any load balancer, and live, with frames that arrive on a veth and
// leave through it again. It is used by fairlead-lab bench only.
package xdpbench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp"
	"github.com/fairlead/fairlead/lab/cputime"
)

// The addresses of the live measurement. The generator, the load balancer and the sink on
// net0 run on one CPU.
const (
	vipAddr     = "10.64.0.1"
	firstClient = "11.0.0.0"
	servers     = 100
	ringSize    = 65537
)

// Live is the network with the programs.
type Live struct {
	*Network
	programs liveObjects
	sink     link.Link
	under    io.Closer // what is attached to eth0
}

// NewLive creates the namespaces. It must run in a sandbox.
func NewLive() (*Live, error) {
	n, err := NewNetwork("bench")
	if err != nil {
		return nil, fmt.Errorf("live: %w", err)
	}
	l := &Live{Network: n}
	if err := l.start(); err != nil {
		return nil, errors.Join(fmt.Errorf("live: %w", err), l.Close())
	}
	return l, nil
}

func (l *Live) start() error {
	if err := loadLiveObjects(&l.programs, nil); err != nil {
		return err
	}
	return l.generator.Do(func() (err error) {
		l.sink, err = link.AttachXDP(link.XDPOptions{Program: l.programs.Sink, Interface: l.net0, Flags: link.XDPDriverMode})
		return err
	})
}

// Swap attaches a program that only swaps the MAC addresses instead of the load balancer:
// the reference.
func (l *Live) Swap() error {
	if err := l.clear(); err != nil {
		return err
	}
	return l.Balancer.Do(func() error {
		at, err := link.AttachXDP(link.XDPOptions{Program: l.programs.Swap, Interface: l.NIC, Flags: link.XDPDriverMode})
		if err == nil {
			l.under = at
		}
		return err
	})
}

// Balance attaches the load balancer with one frontend of a hundred backends.
func (l *Live) Balance(f desired.Frontend) error {
	if err := l.clear(); err != nil {
		return err
	}
	d, err := l.Open(xdp.Config{})
	if err != nil {
		return err
	}
	l.under = d
	return d.Upsert(f)
}

// tunnelFrontend returns the frontend of the tunnel rows.
func tunnelFrontend() desired.Frontend {
	f := desired.Frontend{
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

// Close removes everything.
func (l *Live) Close() error {
	errs := []error{l.clear()}
	if l.sink != nil {
		errs = append(errs, l.sink.Close())
	}
	if l.programs.Generate != nil {
		errs = append(errs, l.programs.Close())
	}
	return errors.Join(append(errs, l.Network.Close())...)
}

// Run is the result of one run.
type Run struct {
	// PerFrame is the CPU time per frame, in nanoseconds: the total of generator, load
	// balancer and sink.
	PerFrame float64
	// Sent and Sunk are numbers of frames. Bytes is the length of a returned frame.
	Sent, Sunk uint64
	Bytes      float64
}

// batch is the number of frames that the kernel sends before the receivers run. A veth's
// ring has 256 entries.
const batch = 64

// Run sends frames of the given number of flows (a power of two).
func (l *Live) Run(frames uint32, flows uint64) (r Run, err error) {
	err = l.generator.Do(func() error {
		return cputime.Pinned(func() (err error) {
			r, err = l.send(frames, flows)
			return err
		})
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
	began := cputime.Thread()
	_, err = l.programs.Generate.Run(&ebpf.RunOptions{Data: frame, Repeat: frames, Flags: unix.BPF_F_TEST_XDP_LIVE_FRAMES, BatchSize: batch})
	if err != nil {
		return r, fmt.Errorf("send live frames: %w", err)
	}
	ended := cputime.Thread()
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

// tcpFrame returns a packet of an established connection to the VIP: 64 bytes, ACK.
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
