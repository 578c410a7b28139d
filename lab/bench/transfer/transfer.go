// Package transfer is both ends of the measurements of pod networks: it sends bytes over TCP
// and counts those that arrive, and sends short requests.
package transfer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/netns"
)

// Ports on which every end listens.
const (
	// SinkPort discards everything it receives.
	SinkPort = 5001
	// EchoPort echoes each request of QuestionSize bytes.
	EchoPort = 5002
	// QuestionSize is about the size of a short request and its answer.
	QuestionSize = 64
)

// chunk is the size of one write or read, the same as iperf3's.
const chunk = 128 << 10

// Order is a command for an end. Exactly one of Send, Stop, Sent and Ask is set.
type Order struct {
	// Send starts to send to a sink, until Stop.
	Send netip.AddrPort `json:"send,omitzero"`
	Stop bool           `json:"stop,omitempty"`
	// Sent queries how many bytes have been acknowledged.
	Sent bool `json:"sent,omitempty"`
	// Ask sends requests one after the other for Seconds seconds, on Connections
	// concurrent connections.
	Ask         netip.AddrPort `json:"ask,omitzero"`
	Seconds     float64        `json:"seconds,omitempty"`
	Connections int            `json:"connections,omitempty"`
}

// Answer is the reply to an order.
type Answer struct {
	Error string `json:"error,omitempty"`
	// Bytes were acknowledged until At, in nanoseconds of the machine's clock.
	// Retransmits is the number of retransmitted packets.
	Bytes       uint64 `json:"bytes,omitempty"`
	At          int64  `json:"at,omitempty"`
	Retransmits uint32 `json:"retransmits,omitempty"`
	// Answers is the number of answers within Seconds. P50 and P99 are in microseconds.
	Answers int     `json:"answers,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
	P50     float64 `json:"p50,omitempty"`
	P99     float64 `json:"p99,omitempty"`
}

// Serve is an end: a sink, an echo server, and a client that
// executes orders from in and writes one answer per order to out. It ends when in does.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	for port, serve := range map[int]func(net.Conn){SinkPort: sink, EchoPort: echo} {
		ln, err := net.Listen("tcp4", fmt.Sprintf(":%d", port))
		if err != nil {
			return err
		}
		defer ln.Close()
		go netns.ServeTCP(ln, serve)
	}
	fmt.Fprintln(out, `{}`)
	s := &sender{}
	defer s.stop()
	encoder, decoder := json.NewEncoder(out), json.NewDecoder(in)
	for {
		var o Order
		if err := decoder.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		a, err := s.obey(ctx, o)
		if err != nil {
			a.Error = err.Error()
		}
		if err := encoder.Encode(a); err != nil {
			return err
		}
	}
}

func sink(c net.Conn) {
	for buffer := make([]byte, chunk); ; {
		if _, err := c.Read(buffer); err != nil {
			return
		}
	}
}

func echo(c net.Conn) {
	for buffer := make([]byte, QuestionSize); ; {
		if _, err := io.ReadFull(c, buffer); err != nil {
			return
		}
		if _, err := c.Write(buffer); err != nil {
			return
		}
	}
}

// sender owns the connection that sends.
type sender struct {
	conn *net.TCPConn
	done chan struct{}
}

func (s *sender) obey(ctx context.Context, o Order) (Answer, error) {
	switch {
	case o.Send.IsValid():
		return Answer{}, s.send(ctx, o.Send)
	case o.Sent:
		return s.sent()
	case o.Ask.IsValid():
		return ask(ctx, o)
	case o.Stop:
		s.stop()
		return Answer{}, nil
	}
	return Answer{}, errors.New("unknown order")
}

// dialTimeout leaves time to retransmit a lost SYN or SYN-ACK.
const dialTimeout = 10 * time.Second

func dial(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	c, err := d.DialContext(ctx, "tcp4", to.String())
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

func (s *sender) send(ctx context.Context, to netip.AddrPort) (err error) {
	s.stop()
	if s.conn, err = dial(ctx, to); err != nil {
		return err
	}
	s.done = make(chan struct{})
	conn, done := s.conn, s.done
	go func() {
		defer close(done)
		for buffer := make([]byte, chunk); ; {
			if _, err := conn.Write(buffer); err != nil {
				return
			}
		}
	}()
	return nil
}

// stop discards what still waits to be sent, so that it does not disturb the next
// measurement.
func (s *sender) stop() {
	if s.conn == nil {
		return
	}
	_ = s.conn.SetLinger(0)
	s.conn.Close()
	<-s.done
	s.conn = nil
}

func (s *sender) sent() (a Answer, err error) {
	if s.conn == nil {
		return a, errors.New("no transfer is running")
	}
	select {
	case <-s.done:
		return a, errors.New("the connection broke")
	default:
	}
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return a, err
	}
	var info *unix.TCPInfo
	failed := raw.Control(func(fd uintptr) {
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		a.At = time.Now().UnixNano()
	})
	if err = errors.Join(failed, err); err != nil {
		return a, err
	}
	a.Bytes, a.Retransmits = info.Bytes_acked, info.Total_retrans
	return a, nil
}

// ask sends requests on all connections and sums up the results.
func ask(ctx context.Context, o Order) (Answer, error) {
	var conns []*net.TCPConn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for range max(o.Connections, 1) {
		c, err := dial(ctx, o.Ask)
		if err != nil {
			return Answer{}, err
		}
		conns = append(conns, c)
	}
	long := time.Duration(o.Seconds * float64(time.Second))
	began := time.Now()
	var going sync.WaitGroup
	took, errs := make([][]time.Duration, len(conns)), make([]error, len(conns))
	for i, c := range conns {
		going.Go(func() { took[i], errs[i] = questions(c, began, long) })
	}
	going.Wait()
	all := slices.Concat(took...)
	if err := errors.Join(errs...); err != nil || len(all) == 0 {
		return Answer{}, errors.Join(err, fmt.Errorf("%d answers from %s", len(all), o.Ask))
	}
	slices.Sort(all)
	us := func(percent int) float64 { return float64(all[(len(all)-1)*percent/100].Nanoseconds()) / 1e3 }
	return Answer{Answers: len(all), Seconds: time.Since(began).Seconds(), P50: us(50), P99: us(99)}, nil
}

// questions sends requests one after the other, and returns the response times.
func questions(c net.Conn, began time.Time, long time.Duration) (took []time.Duration, err error) {
	if err := c.SetDeadline(began.Add(long + dialTimeout)); err != nil {
		return nil, err
	}
	buffer := make([]byte, QuestionSize)
	for asked := time.Now(); asked.Sub(began) < long; {
		if _, err := c.Write(buffer); err != nil {
			return took, err
		}
		if _, err := io.ReadFull(c, buffer); err != nil {
			return took, err
		}
		now := time.Now()
		took = append(took, now.Sub(asked))
		asked = now
	}
	return took, nil
}

// Peer is an end that runs in a host. It ends with the host.
type Peer struct {
	process *lab.Process
	in      *json.Encoder
	out     *json.Decoder
}

// Start starts an end in a host.
func Start(h *lab.Host) (*Peer, error) {
	process, in, out, err := h.Converse(lab.Self("bench", "cni-peer"))
	if err != nil {
		return nil, err
	}
	p := &Peer{process, json.NewEncoder(in), json.NewDecoder(out)}
	_, err = p.answered()
	return p, err
}

func (p *Peer) answered() (a Answer, err error) {
	if err := p.out.Decode(&a); err != nil {
		return a, fmt.Errorf("a peer has ended: %w", err)
	}
	if a.Error != "" {
		return a, errors.New(a.Error)
	}
	return a, nil
}

// PID is the process.
func (p *Peer) PID() int { return p.process.PID() }

// Do executes an order and returns its answer.
func (p *Peer) Do(o Order) (Answer, error) {
	if err := p.in.Encode(o); err != nil {
		return Answer{}, err
	}
	return p.answered()
}
