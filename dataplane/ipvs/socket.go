package ipvs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// socket is a generic netlink socket for IPVS. Several messages are sent in one system
// call, of which only the last is acknowledged: a frontend costs two calls, regardless of
// its number of backends.
type socket struct {
	mu     sync.Mutex
	fd     int
	family uint16
	seq    uint32
	in     *inbox
}

// sendAtOnce is the maximum number of bytes per call.
const sendAtOnce = 16 << 10

// waitSeconds is how long an answer may take.
const waitSeconds = 30

// openSocket opens one in the calling thread's network namespace, for answers in
// datagrams of the given length.
func openSocket(datagram int) (*socket, error) {
	number, err := familyNumber()
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_GENERIC)
	if err != nil {
		return nil, fmt.Errorf("ipvs: netlink socket: %w", err)
	}
	wait := unix.Timeval{Sec: waitSeconds}
	err = errors.Join(unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait))
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("ipvs: netlink socket: %w", err)
	}
	return &socket{fd: fd, family: number, in: newInbox(datagram)}, nil
}

// familyNumber finds IPVS, and loads its module if necessary.
func familyNumber() (uint16, error) {
	f, err := netlink.GenlFamilyGet("IPVS")
	if errors.Is(err, unix.ENOENT) {
		if output, failed := exec.Command("modprobe", "ip_vs").CombinedOutput(); failed != nil {
			return 0, fmt.Errorf("%w: modprobe ip_vs: %w: %s", ErrNoIPVS, failed, strings.TrimSpace(string(output)))
		}
		f, err = netlink.GenlFamilyGet("IPVS")
	}
	if err != nil {
		return 0, fmt.Errorf("%w: generic netlink: %w", ErrNoIPVS, err)
	}
	return f.ID, nil
}

func (s *socket) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		return nil
	}
	err := unix.Close(s.fd)
	s.fd = -1
	return err
}

// address sets a message's family and number.
func (s *socket) address(m message) {
	s.seq++
	binary.NativeEndian.PutUint16(m[4:], s.family)
	binary.NativeEndian.PutUint32(m[8:], s.seq)
}

// do executes messages in order, and returns the errors of those that failed: the others
// have taken effect.
func (s *socket) do(messages []message) (failed map[int]error, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	failed = map[int]error{}
	for from := 0; from < len(messages); {
		first := s.seq + 1
		var packet []byte
		to := from
		for ; to < len(messages) && (to == from || len(packet)+len(messages[to]) <= sendAtOnce); to++ {
			s.address(messages[to])
			packet = append(packet, messages[to]...)
		}
		last := packet[len(packet)-len(messages[to-1]):]
		binary.NativeEndian.PutUint16(last[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
		if err := s.send(packet); err != nil {
			return failed, err
		}
		for acked := false; !acked; {
			err := s.receive(func(seq uint32, kind uint16, body []byte) error {
				if kind != unix.NLMSG_ERROR || seq < first || seq > s.seq || len(body) < 4 {
					return nil // of an abandoned call
				}
				acked = acked || seq == s.seq
				if errno := -int32(binary.NativeEndian.Uint32(body)); errno != 0 {
					failed[from+int(seq-first)] = unix.Errno(errno)
				}
				return nil
			})
			if err != nil {
				return failed, err
			}
		}
		from = to
	}
	return failed, nil
}

// ask sends a request and calls each with every reply to it. Reading many services is
// cheap, because the kernel answers within the call, and one more call receives all
// replies.
func (s *socket) ask(m message, each func(reply []byte) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.address(m)
	if err := s.sendQuick(m); err != nil {
		return err
	}
	dump := binary.NativeEndian.Uint16(m[6:])&unix.NLM_F_DUMP == unix.NLM_F_DUMP
	for done := false; !done; {
		err := s.receive(func(seq uint32, kind uint16, body []byte) error {
			switch {
			case seq != s.seq:
				return nil
			case kind == unix.NLMSG_DONE:
				done = true
			case kind == unix.NLMSG_ERROR && len(body) >= 4:
				done = true
				if errno := -int32(binary.NativeEndian.Uint32(body)); errno != 0 {
					return unix.Errno(errno)
				}
			case kind == s.family:
				done = !dump
				return each(body)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *socket) send(packet []byte) error {
	if err := unix.Sendto(s.fd, packet, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("ipvs: netlink: %w", err)
	}
	return nil
}

// receive takes the available datagrams, or waits for one, and calls each with their
// messages.
func (s *socket) receive(each func(seq uint32, kind uint16, body []byte) error) error {
	n, err := s.in.take(s.fd)
	if err != nil {
		return fmt.Errorf("ipvs: netlink: %w", err)
	}
	for i := range n {
		for b := s.in.datagram(i); len(b) >= unix.NLMSG_HDRLEN; {
			length := int(binary.NativeEndian.Uint32(b))
			if length < unix.NLMSG_HDRLEN || length > len(b) {
				return errShort
			}
			if err := each(binary.NativeEndian.Uint32(b[8:]), binary.NativeEndian.Uint16(b[4:]), b[unix.NLMSG_HDRLEN:length]); err != nil {
				return err
			}
			b = b[min((length+3)&^3, len(b)):]
		}
	}
	return nil
}
