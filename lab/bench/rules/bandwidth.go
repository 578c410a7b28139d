package rules

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/bench/testbed"
	"github.com/fairlead/fairlead/lab/kube"
)

// The slides' bandwidth is measured by qperf, whose test of TCP sends messages of 64 KiB
// over one connection. Rules apply to the first packet of a connection alone, so it is
// also measured with a connection for each message, and with single packets.
const (
	message = 64 << 10
	// streamed, connected and single are the numbers of messages, connections and packets
	// of one sample.
	streamed, connected, packets = 50, 5, 20
	// packet is the number of bytes of a single packet.
	packet = 1000
	// answerLimit is the time limit of one exchange.
	answerLimit = 10 * time.Second
)

// loads contains what is sent to a Service, and how long it takes.
var loads = []struct {
	name  string
	bytes int
	send  func(netip.Addr) (took time.Duration, err error)
}{
	{"one connection", streamed * message, func(to netip.Addr) (time.Duration, error) { return transfer(to, streamed) }},
	{"short connections", connected * message, repeat(connected, func(to netip.Addr) error { _, err := transfer(to, 1); return err })},
	{"single packets", packets * packet, repeat(packets, exchange)},
}

func repeat(times int, do func(netip.Addr) error) func(netip.Addr) (time.Duration, error) {
	return func(to netip.Addr) (time.Duration, error) {
		began := time.Now()
		for range times {
			if err := do(to); err != nil {
				return 0, err
			}
		}
		return time.Since(began), nil
	}
}

// bandwidths measures Services in alternation.
func (o Options) bandwidths(positions []position, row func(text, unit string, values ...float64)) error {
	if o.Transfers == 0 {
		return nil
	}
	for _, l := range loads {
		rates := map[string][]float64{}
		for range o.Transfers {
			for _, at := range positions {
				took, err := l.send(kube.ServiceAddr(at.i))
				if err != nil {
					return fmt.Errorf("%s to the %s: %w", l.name, at.name, err)
				}
				rates[at.name] = append(rates[at.name], float64(l.bytes)/1e6/took.Seconds())
			}
		}
		for _, at := range positions {
			row(fmt.Sprintf("%s to the %s", l.name, at.name), "MB/s", rates[at.name]...)
		}
	}
	return nil
}

// transfer sends messages over a new connection, and returns how long it takes, from the
// established connection on, until the server has read all of them and has closed it.
func transfer(to netip.Addr, messages int) (took time.Duration, err error) {
	c, err := net.DialTimeout("tcp4", netip.AddrPortFrom(to, testbed.ServicePort).String(), answerLimit)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	began := time.Now()
	if err := c.SetDeadline(began.Add(answerLimit)); err != nil {
		return 0, err
	}
	for b := make([]byte, message); messages > 0; messages-- {
		if _, err := c.Write(b); err != nil {
			return 0, err
		}
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, c)
	return time.Since(began), err
}

// exchange sends a packet from a new socket, and waits for the answer.
func exchange(to netip.Addr) error {
	c, err := net.Dial("udp4", netip.AddrPortFrom(to, testbed.ServicePort).String())
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(answerLimit)); err != nil {
		return err
	}
	b := make([]byte, packet)
	if _, err := c.Write(b); err != nil {
		return err
	}
	_, err = c.Read(b)
	return err
}

// echo starts a server that answers each packet to an endpoint with its first byte.
func echo() (io.Closer, error) {
	c, err := net.ListenUDP("udp4", &net.UDPAddr{Port: testbed.Port})
	if err != nil {
		return nil, err
	}
	raw, err := c.SyscallConn()
	if err == nil {
		err = errors.Join(raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1) }), err)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	go func() {
		// The control message contains the address to which a packet was sent; passed back,
		// it selects the source of the answer.
		b, control := make([]byte, packet), make([]byte, 128)
		for {
			n, m, _, from, err := c.ReadMsgUDPAddrPort(b, control)
			if err == nil && n > 0 {
				_, _, err = c.WriteMsgUDPAddrPort(b[:1], control[:m], from)
			}
			if errors.Is(err, net.ErrClosed) {
				return
			}
		}
	}()
	return c, nil
}
