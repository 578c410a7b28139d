package probe

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/shorten"
)

// maxAnswer limits how much of an HTTP response is read, in bytes.
const maxAnswer = 64 << 10

// probe probes a target once. Nil means success.
func probe(ctx context.Context, t health.Target) error {
	deadline := time.Now().Add(t.Check.Timeout)
	dialer := net.Dialer{Deadline: deadline, KeepAlive: -1}
	conn, err := dialer.DialContext(ctx, "tcp", t.Addr.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	// Closing with a reset leaves no socket in TIME_WAIT on either side.
	if err := conn.(*net.TCPConn).SetLinger(0); err != nil {
		return err
	}
	if t.Check.Kind != service.CheckHTTP {
		return nil
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	return get(conn, t)
}

// get sends one request by hand: a net/http client would follow redirects, keep
// connections and continue dialing after a request has given up.
func get(conn net.Conn, t health.Target) error {
	req, err := http.NewRequest(http.MethodGet, "http://"+t.Addr.String()+t.Check.Path, nil)
	if err != nil {
		return err
	}
	if t.Check.Host != "" {
		req.Host = t.Check.Host
	}
	req.Header.Set("User-Agent", "fairlead-health")
	req.Close = true
	if err := req.Write(conn); err != nil {
		return err
	}
	r := bufio.NewReader(io.LimitReader(conn, maxAnswer))
	resp, err := http.ReadResponse(r, req)
	for err == nil && resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols {
		resp, err = http.ReadResponse(r, req)
	}
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return errors.New("closed the connection without an HTTP answer")
	case err != nil:
		return err
	case resp.StatusCode < 200 || resp.StatusCode > 399:
		return fmt.Errorf("HTTP %d, wanted 2xx or 3xx", resp.StatusCode)
	}
	// Only the status matters. The body is read so that the backend does not see its
	// response rejected.
	_, _ = io.Copy(io.Discard, resp.Body)
	return nil
}

// exhausted lists errors of this machine, not of the backend.
var exhausted = []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL}

// ours reports whether an error says nothing about the backend.
func ours(err error) bool {
	return slices.ContainsFunc(exhausted, func(e error) bool { return errors.Is(err, e) })
}

// words formats the error of a probe for display.
func words(err error, timeout time.Duration) string {
	var errno syscall.Errno
	switch {
	case ours(err) && errors.As(err, &errno):
		return "could not be probed: " + errno.Error()
	case timedOut(err):
		return fmt.Sprintf("no answer within %s", timeout)
	case errors.As(err, &errno):
		return errno.Error()
	}
	return shorten.Text(err.Error(), maxWords)
}

// maxWords limits how much of an error is reported, in bytes: errors about a malformed
// response quote it, and backends must not be able to fill logs and status.
const maxWords = 200

func timedOut(err error) bool {
	var t net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &t) && t.Timeout()
}
