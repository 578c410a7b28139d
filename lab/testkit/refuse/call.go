package refuse

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// call is a system call that waits for an answer. What cannot be read is empty: the call
// then matches no rule, and the kernel finds the same fault.
type call struct {
	tid  int
	nr   int
	args [6]uint64
	// Read once, if a rule needs it.
	attrRead, payloadRead bool
	attrBytes             attr
	payloadBytes          []byte
}

// read returns up to n bytes of the caller's memory.
func (c *call) read(address uint64, n int) []byte {
	if n <= 0 {
		return nil
	}
	b := make([]byte, n)
	remote := []unix.RemoteIovec{{Base: uintptr(address), Len: n}}
	local := []unix.Iovec{{Base: &b[0]}}
	local[0].SetLen(n)
	got, err := unix.ProcessVMReadv(c.tid, local, remote, 0)
	if err != nil {
		return nil
	}
	return b[:got]
}

// attr is the argument of bpf(2).
func (c *call) attr() attr {
	if !c.attrRead {
		c.attrRead, c.attrBytes = true, c.read(c.args[1], min(int(uint32(c.args[2])), attrLen))
	}
	return c.attrBytes
}

// maxPayload exceeds every netlink message that the rules know.
const maxPayload = 1 << 20

// payload is what the call sends to a netlink socket, empty for other addresses.
func (c *call) payload() []byte {
	if !c.payloadRead {
		c.payloadRead = true
		if c.nr == unix.SYS_SENDTO {
			c.payloadBytes = c.read(c.args[1], int(min(c.args[2], maxPayload)))
		} else {
			c.payloadBytes = c.gather(c.read(c.args[1], unix.SizeofMsghdr))
		}
	}
	return c.payloadBytes
}

// gather reads what a struct msghdr of a 64-bit process points to.
func (c *call) gather(header []byte) (payload []byte) {
	if len(header) < unix.SizeofMsghdr {
		return nil
	}
	word := func(b []byte, offset int) uint64 { return binary.NativeEndian.Uint64(b[offset:]) }
	if name := c.read(word(header, 0), min(2, int(binary.NativeEndian.Uint32(header[8:])))); len(name) == 2 &&
		binary.NativeEndian.Uint16(name) != unix.AF_NETLINK {
		return nil
	}
	const sizeofIovec, maxIovecs = 16, 1024
	vectors := c.read(word(header, 16), sizeofIovec*int(min(word(header, 24), maxIovecs)))
	for ; len(vectors) >= sizeofIovec && len(payload) < maxPayload; vectors = vectors[sizeofIovec:] {
		payload = append(payload, c.read(word(vectors, 0), int(min(word(vectors, 8), maxPayload)))...)
	}
	return payload
}

// netlinkProtocol is that of the socket in the first argument, -1 if it is not
// a netlink socket. The same message types mean other things elsewhere.
func (c *call) netlinkProtocol() int {
	fd, err := c.duplicate(int(int32(c.args[0])))
	if err != nil {
		return -1
	}
	defer unix.Close(fd)
	if domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err != nil || domain != unix.AF_NETLINK {
		return -1
	}
	protocol, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if err != nil {
		return -1
	}
	return protocol
}

// duplicate duplicates a file of the caller into this process.
func (c *call) duplicate(fd int) (int, error) {
	const pidfdThread = unix.O_EXCL // PIDFD_THREAD, since Linux 6.9
	pidfd, err := unix.PidfdOpen(c.tid, pidfdThread)
	if err != nil {
		pid, err := processOf(c.tid)
		if err != nil {
			return -1, err
		}
		if pidfd, err = unix.PidfdOpen(pid, 0); err != nil {
			return -1, err
		}
	}
	defer unix.Close(pidfd)
	return unix.PidfdGetfd(pidfd, fd, 0)
}

// processOf is the process that a thread belongs to.
func processOf(tid int) (int, error) {
	status, err := os.Open(fmt.Sprintf("/proc/%d/status", tid))
	if err != nil {
		return 0, err
	}
	defer status.Close()
	for lines := bufio.NewScanner(status); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "Tgid:"); ok {
			return strconv.Atoi(strings.TrimSpace(text))
		}
	}
	return 0, fmt.Errorf("thread %d belongs to no process", tid)
}
