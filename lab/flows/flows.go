// Package flows sends many UDP flows from one host to one address, where hosts reply with
// their names, to show which host each flow reaches. It counts lost datagrams, and flows
// that move to another host.
package flows

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab"
)

// patience is how long an answer may take on a busy machine. A datagram without an answer
// counts as lost.
const patience = 3 * time.Second

// Answer makes a host answer with its name at an address, until it is closed.
func Answer(h *lab.Host, at netip.AddrPort) (net.PacketConn, error) {
	c, err := h.ListenPacket("udp", at.String())
	if err != nil {
		return nil, err
	}
	if err := roomFor(c.(*net.UDPConn)); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	go func() {
		buf := make([]byte, 64)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = c.WriteTo(append(buf[:n:n], h.Name()...), from)
		}
	}()
	return c, nil
}

// roomFor sets a receive buffer for one datagram of every flow, each in a page or two.
func roomFor(c *net.UDPConn) error {
	const room = 16 << 20
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	failed := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, room) })
	return errors.Join(failed, err)
}

// Flows are flows from one host to one address. Their methods are not safe for concurrent
// use.
type Flows struct {
	to    netip.AddrPort
	conns []net.PacketConn
	sent  uint32
	// Lost counts datagrams without an answer, Sent all of them.
	Lost, Sent int
}

// Open opens n flows from ports of a host.
func Open(h *lab.Host, from netip.Addr, to netip.AddrPort, n int) (*Flows, error) {
	f := &Flows{to: to}
	for range n {
		c, err := h.ListenPacket("udp", netip.AddrPortFrom(from, 0).String())
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		f.conns = append(f.conns, c)
	}
	return f, nil
}

// Close closes them.
func (f *Flows) Close() error {
	var errs []error
	for _, c := range f.conns {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// Ask sends a datagram on each flow and returns who answered; "" for no answer.
func (f *Flows) Ask() ([]string, error) {
	f.sent++
	mark := fmt.Appendf(nil, "%08x", f.sent)
	for _, c := range f.conns {
		f.Sent++
		if _, err := c.WriteTo(mark, net.UDPAddrFromAddrPort(f.to)); err != nil {
			return nil, err
		}
	}
	who := make([]string, len(f.conns))
	for i, c := range f.conns {
		name, err := answer(c, string(mark))
		if err != nil {
			return nil, err
		}
		if who[i] = name; name == "" {
			f.Lost++
		}
	}
	return who, nil
}

// answer reads the answer to a mark, and skips late answers to others.
func answer(c net.PacketConn, mark string) (string, error) {
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	buf := make([]byte, 64)
	for {
		n, _, err := c.ReadFrom(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		if n > len(mark) && string(buf[:len(mark)]) == mark {
			return string(buf[len(mark):n]), nil
		}
	}
}

// Moved counts the flows that another host answers now, by their previous host.
func Moved(before, now []string) map[string]int {
	moved := map[string]int{}
	for i := range before {
		if before[i] != now[i] {
			moved[before[i]]++
		}
	}
	return moved
}

// Shares counts the flows of each host.
func Shares(who []string) map[string]int {
	shares := map[string]int{}
	for _, name := range who {
		shares[name]++
	}
	return shares
}

// Held calls Ask repeatedly until ctx ends, and returns how many times a flow was
// answered by another host than before.
func (f *Flows) Held(ctx context.Context, before []string) (moved int, err error) {
	for ctx.Err() == nil {
		now, err := f.Ask()
		if err != nil {
			return moved, err
		}
		for _, n := range Moved(before, now) {
			moved += n
		}
		before = now
	}
	return moved, nil
}

// During runs f.Held while do runs, and returns its result.
func (f *Flows) During(before []string, do func()) (moved int, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { moved, err = f.Held(ctx, before) })
	do()
	cancel()
	wg.Wait()
	return moved, err
}
