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

// maxAnswer is how much of an HTTP answer is read, in bytes.
const maxAnswer = 64 << 10

// probe asks a target once; nil means that it is well.
func probe(ctx context.Context, t health.Target) error {
	deadline := time.Now().Add(t.Check.Timeout)
	dialer := net.Dialer{Deadline: deadline, KeepAlive: -1}
	conn, err := dialer.DialContext(ctx, "tcp", t.Addr.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	// Closing by a reset leaves no socket in TIME_WAIT, on either side.
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

// get makes one request by hand: a client of net/http would follow redirects,
// keep connections and dial on after a request has given up.
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
	// The status decides; the body is read so that the server does not see
	// its answer refused.
	_, _ = io.Copy(io.Discard, resp.Body)
	return nil
}

// exhausted are errors of this machine, not of the server.
var exhausted = []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL}

// ours says that an error tells nothing about the server.
func ours(err error) bool {
	return slices.ContainsFunc(exhausted, func(e error) bool { return errors.Is(err, e) })
}

// words says an error of a probe to people.
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

// maxWords is how much of an error is told, in bytes: one about a malformed answer
// quotes it, and what a server says must not fill logs and Status.
const maxWords = 200

func timedOut(err error) bool {
	var t net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &t) && t.Timeout()
}
