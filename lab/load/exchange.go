package load

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// connection is an established connection.
type connection struct {
	net.Conn
	r    *bufio.Reader
	free func() bool // stops watching for the end of the load, which would close it
}

func (k *connection) close() {
	if k != nil {
		k.free()
		k.Close()
	}
}

// exchange makes one request, on conn or, if that is nil or has ended, on a new
// connection, counts the result, and returns the connection if it can be used again.
// There are no retries.
func (c *Client) exchange(conn *connection, local netip.Addr, began time.Time, closes bool) *connection {
	ctx, cancel := context.WithDeadline(c.abort, began.Add(c.cfg.Timeout))
	defer cancel()
	conn = c.stillOpen(conn)
	if conn == nil {
		var err error
		if conn, err = c.open(ctx, local); err != nil {
			c.countFailure(fmt.Sprintf("connect: %s", reason(err)), false)
			return nil
		}
	}
	conn.SetDeadline(began.Add(c.cfg.Timeout))
	resp, err := c.ask(conn, closes)
	if err != nil {
		c.countFailure(reason(err), true)
		conn.close()
		return nil
	}
	if resp.StatusCode != http.StatusOK {
		c.countFailure(fmt.Sprintf("status %d", resp.StatusCode), false)
	} else {
		c.countAnswer(resp.Header.Get(ServerHeader), time.Since(began))
	}
	if closes || !resp.Close {
		return conn
	}
	c.count(func(t *Counts, _ *Bin) { t.Closed++ })
	conn.close()
	return nil
}

func (c *Client) open(ctx context.Context, local netip.Addr) (*connection, error) {
	raw, err := c.cfg.Dial(ctx, local, c.cfg.Target)
	if err != nil {
		return nil, err
	}
	c.count(func(t *Counts, _ *Bin) { t.Connections++ })
	return &connection{
		Conn: raw,
		r:    bufio.NewReader(raw),
		free: context.AfterFunc(c.abort, func() { raw.Close() }),
	}, nil
}

// ask sends one request and reads the complete answer.
func (c *Client) ask(conn *connection, closes bool) (*http.Response, error) {
	request := c.request[0]
	if closes {
		request = c.request[1]
	}
	if _, err := conn.Write(request); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(conn.r, &http.Request{Method: http.MethodGet})
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return nil, err
	}
	return resp, nil
}

// stillOpen checks a connection that was idle: it returns it if it is still open,
// otherwise it counts how it ended and returns nil.
func (c *Client) stillOpen(conn *connection) *connection {
	if conn == nil {
		return nil
	}
	switch err := peek(conn.Conn); {
	case err == nil:
		return conn
	case errors.Is(err, io.EOF):
		c.count(func(t *Counts, _ *Bin) { t.Closed++ })
	default:
		c.count(func(t *Counts, b *Bin) {
			t.BrokenConnections++
			b.BrokenConnections++
			t.Reasons["idle: "+reason(err)]++
		})
	}
	conn.close()
	return nil
}

// errUnasked means that a server sent data without a request.
var errUnasked = errors.New("data without a request")

// peek returns nil for a connection that is open and has nothing to read, io.EOF for one
// that the peer has closed.
func peek(conn net.Conn) error {
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	var n int
	var failed error
	// Control, not Read: the last request's deadline may have passed.
	err = raw.Control(func(fd uintptr) {
		n, _, failed = unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
	})
	switch {
	case err != nil:
		return err
	case errors.Is(failed, unix.EAGAIN):
		return nil
	case failed != nil:
		return failed
	case n == 0:
		return io.EOF
	}
	return errUnasked
}

func (c *Client) countAnswer(server string, took time.Duration) {
	c.count(func(t *Counts, b *Bin) {
		t.Requests++
		b.Requests++
		t.PerServer[server]++
		b.PerServer[server]++
		t.Latency.Add(took)
		b.Slowest = max(b.Slowest, took)
	})
}

func (c *Client) countFailure(why string, broke bool) {
	c.count(func(t *Counts, b *Bin) {
		t.Requests++
		b.Requests++
		t.Failed++
		b.Failed++
		t.Reasons[why]++
		if broke {
			t.BrokenConnections++
			b.BrokenConnections++
		}
	})
}

// reason names an error's cause in a few words.
func reason(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return "reset"
	case errors.Is(err, unix.ECONNREFUSED):
		return "refused"
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH):
		return "unreachable"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "closed early"
	}
	return err.Error()
}
