// Package bypass sends frames in the two ways in which a socket bypasses a device's
// queues, and with them every tc program there: what a hostile container with CAP_NET_RAW
// does. The caller defines the content of the frames.
package bypass

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab"
)

// Socket sends frames through one device. It is not safe for concurrent use.
type Socket interface {
	// Send sends one frame. It is not an error if the frame is dropped on its way.
	Send(frame []byte) error
	Close() error
}

// Ways open a Socket at a device of a host, by name.
var Ways = map[string]func(h *lab.Host, device string) (Socket, error){
	"PACKET_QDISC_BYPASS": Packet, "AF_XDP": XDP,
}

// packet is a packet socket with PACKET_QDISC_BYPASS (packet(7)).
type packet struct{ fd, index int }

// Packet opens a packet socket that bypasses queues.
func Packet(h *lab.Host, device string) (Socket, error) {
	p := &packet{fd: -1}
	err := h.Do(func() error {
		dev, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		p.index = dev.Index
		if p.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return unix.SetsockoptInt(p.fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1)
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("packet socket at %s: %w", device, err), p.Close())
	}
	return p, nil
}

func (p *packet) Send(frame []byte) error {
	err := unix.Sendto(p.fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: p.index, Halen: 6})
	if errors.Is(err, unix.ENOBUFS) {
		return nil // how a packet socket reports a drop
	}
	return err
}

func (p *packet) Close() error {
	if p.fd < 0 {
		return nil
	}
	return unix.Close(p.fd)
}

// Sizes of an AF_XDP socket: one frame is in flight at a time.
const (
	ringSize  = 64
	chunkSize = 4096
)

// xdp is an AF_XDP socket in copy mode, which works on every device
// (Documentation/networking/af_xdp.rst). Its rings are shared with the kernel.
type xdp struct {
	fd                int
	memory            []byte // memory of frames
	sending, complete []byte // rings
	offsets           unix.XDPMmapOffsets
}

// XDP opens an AF_XDP socket at a device's first queue. A closed socket releases the
// queue only after a while.
func XDP(h *lab.Host, device string) (Socket, error) {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		x := &xdp{fd: -1}
		err := h.Do(func() error { return x.open(device) })
		if err == nil {
			return x, nil
		}
		if err = errors.Join(err, x.Close()); !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return nil, fmt.Errorf("AF_XDP socket at %s: %w", device, err)
		}
	}
}

func (x *xdp) open(device string) error {
	dev, err := net.InterfaceByName(device)
	if err != nil {
		return err
	}
	if x.fd, err = unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		return err
	}
	if err := x.rings(); err != nil {
		return err
	}
	return unix.Bind(x.fd, &unix.SockaddrXDP{Flags: unix.XDP_COPY, Ifindex: uint32(dev.Index)})
}

// rings registers the memory of frames and mmaps the rings.
func (x *xdp) rings() (err error) {
	if x.memory, err = unix.Mmap(-1, 0, ringSize*chunkSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS); err != nil {
		return err
	}
	memory := unix.XDPUmemReg{Addr: uint64(uintptr(unsafe.Pointer(&x.memory[0]))), Len: uint64(len(x.memory)), Size: chunkSize}
	if err := x.option(unix.XDP_UMEM_REG, unsafe.Pointer(&memory), unsafe.Sizeof(memory)); err != nil {
		return fmt.Errorf("memory of frames: %w", err)
	}
	for _, ring := range []int{unix.XDP_UMEM_FILL_RING, unix.XDP_UMEM_COMPLETION_RING, unix.XDP_TX_RING} {
		if err := unix.SetsockoptInt(x.fd, unix.SOL_XDP, ring, ringSize); err != nil {
			return fmt.Errorf("ring: %w", err)
		}
	}
	size := uint32(unsafe.Sizeof(x.offsets))
	if _, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(x.fd), unix.SOL_XDP, unix.XDP_MMAP_OFFSETS,
		uintptr(unsafe.Pointer(&x.offsets)), uintptr(unsafe.Pointer(&size)), 0); errno != 0 {
		return fmt.Errorf("offsets: %w", errno)
	}
	if x.sending, err = x.mapped(unix.XDP_PGOFF_TX_RING, x.offsets.Tx.Desc+ringSize*uint64(unsafe.Sizeof(unix.XDPDesc{}))); err != nil {
		return err
	}
	x.complete, err = x.mapped(unix.XDP_UMEM_PGOFF_COMPLETION_RING, x.offsets.Cr.Desc+ringSize*8)
	return err
}

func (x *xdp) option(name int, value unsafe.Pointer, size uintptr) error {
	if _, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(x.fd), unix.SOL_XDP, uintptr(name), uintptr(value), size, 0); errno != 0 {
		return errno
	}
	return nil
}

func (x *xdp) mapped(at int64, size uint64) ([]byte, error) {
	return unix.Mmap(x.fd, at, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
}

// counter is a ring's producer or consumer.
func counter(ring []byte, at uint64) *uint32 { return (*uint32)(unsafe.Pointer(&ring[at])) }

func (x *xdp) Send(frame []byte) error {
	if len(frame) > chunkSize {
		return fmt.Errorf("a frame of %d bytes is longer than %d", len(frame), chunkSize)
	}
	producer := counter(x.sending, x.offsets.Tx.Producer)
	slot := atomic.LoadUint32(producer) % ringSize
	at := uint64(slot) * chunkSize
	copy(x.memory[at:], frame)
	descriptor := (*unix.XDPDesc)(unsafe.Pointer(&x.sending[x.offsets.Tx.Desc+uint64(slot)*uint64(unsafe.Sizeof(unix.XDPDesc{}))]))
	*descriptor = unix.XDPDesc{Addr: at, Len: uint32(len(frame))}
	atomic.AddUint32(producer, 1)
	return x.sent()
}

// sent makes the kernel send, and waits until it has.
func (x *xdp) sent() error {
	done := counter(x.complete, x.offsets.Cr.Producer)
	taken := counter(x.complete, x.offsets.Cr.Consumer)
	deadline := time.Now().Add(5 * time.Second)
	for atomic.LoadUint32(done) == atomic.LoadUint32(taken) {
		_, _, errno := unix.Syscall6(unix.SYS_SENDTO, uintptr(x.fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
		if errno != 0 && errno != unix.EAGAIN && errno != unix.EBUSY && errno != unix.ENOBUFS {
			return errno
		}
		if time.Now().After(deadline) {
			return errors.New("the kernel does not say that it sent a frame")
		}
		runtime.Gosched()
	}
	atomic.StoreUint32(taken, atomic.LoadUint32(done))
	return nil
}

func (x *xdp) Close() error {
	var errs []error
	for _, m := range [][]byte{x.sending, x.complete} {
		if m != nil {
			errs = append(errs, unix.Munmap(m))
		}
	}
	if x.fd >= 0 {
		errs = append(errs, unix.Close(x.fd))
	}
	if x.memory != nil {
		errs = append(errs, unix.Munmap(x.memory))
	}
	return errors.Join(errs...)
}
