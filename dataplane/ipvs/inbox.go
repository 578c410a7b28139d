package ipvs

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// inbox receives several datagrams of a netlink socket in one system call: one has a
// service's backends, another the end of the list.
type inbox struct {
	buffers [][]byte
	parts   []unix.Iovec
	headers []received
}

// received is struct mmsghdr (recvmmsg(2)).
type received struct {
	header unix.Msghdr
	length uint32
}

// The kernel makes its datagrams as long as the reader's longest buffer, from a page to
// 32 KB. Long ones cost more than the backends of one service fill. But for each datagram
// of services the kernel iterates over all that it has already sent.
const (
	shortDatagram = 8 << 10
	longDatagram  = 32 << 10
	inboxSize     = 64 << 10
)

func newInbox(datagram int) *inbox {
	n := inboxSize / datagram
	in := &inbox{make([][]byte, n), make([]unix.Iovec, n), make([]received, n)}
	for i := range n {
		in.buffers[i] = make([]byte, datagram)
		in.parts[i].Base = &in.buffers[i][0]
		in.parts[i].SetLen(datagram)
		in.headers[i].header.Iov = &in.parts[i]
		in.headers[i].header.SetIovlen(1)
	}
	return in
}

// take reads what is available and otherwise waits for the first datagram, with the
// socket's timeout.
func (in *inbox) take(fd int) (n int, err error) {
	count, _, errno := syscall.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&in.headers[0])), uintptr(len(in.headers)), unix.MSG_DONTWAIT, 0, 0)
	if errno == 0 {
		return int(count), nil
	}
	err = errno
	for errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		if n, _, err = unix.Recvfrom(fd, in.buffers[0], 0); err == nil {
			in.headers[0].length = uint32(n)
			return 1, nil
		}
		if errors.Is(err, unix.EAGAIN) {
			return 0, fmt.Errorf("no answer within %d s: %w", waitSeconds, err)
		}
	}
	return 0, err
}

// datagram returns the i-th of those taken.
func (in *inbox) datagram(i int) []byte { return in.buffers[i][:in.headers[i].length] }

// toKernel is the destination of every message.
var toKernel = unix.RawSockaddrNetlink{Family: unix.AF_NETLINK}

// sendQuick sends a request. The runtime is not informed of this call, nor of the one
// that receives the answer: they are short, and informing it costs more than they do if
// another thread then takes over.
func (s *socket) sendQuick(question message) error {
	_, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(s.fd), uintptr(unsafe.Pointer(&question[0])), uintptr(len(question)), 0,
		uintptr(unsafe.Pointer(&toKernel)), unsafe.Sizeof(toKernel))
	if errno != 0 {
		return fmt.Errorf("ipvs: netlink: %w", errno)
	}
	return nil
}
