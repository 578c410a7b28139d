package ecmp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/fairlead/fairlead/lab/load"
)

// What an uploading connection writes at a time, and what may wait in its socket:
// so little that what is written is as good as sent.
const (
	uploadChunk  = 16 << 10
	uploadBuffer = 64 << 10
)

// upload is traffic that takes all it can get: connections over each of which one
// request goes whose body does not end.
type upload struct {
	sent  atomic.Uint64 // bytes
	end   context.CancelFunc
	going sync.WaitGroup
	mu    sync.Mutex
	err   error
}

// startUpload opens n connections from the client's addresses in turn.
func startUpload(ctx context.Context, dial load.Dial, locals []netip.Addr, to netip.AddrPort, n int) (*upload, error) {
	ctx, cancel := context.WithCancel(ctx)
	u := &upload{end: cancel}
	for i := range n {
		conn, err := dial(ctx, locals[i%len(locals)], to)
		if err != nil {
			return nil, errors.Join(err, u.stop())
		}
		context.AfterFunc(ctx, func() { conn.Close() })
		u.going.Go(func() {
			if err := u.run(conn, to); err != nil && ctx.Err() == nil {
				u.mu.Lock()
				defer u.mu.Unlock()
				u.err = errors.Join(u.err, err)
			}
		})
	}
	return u, nil
}

func (u *upload) run(conn net.Conn, to netip.AddrPort) error {
	defer conn.Close()
	if err := conn.(*net.TCPConn).SetWriteBuffer(uploadBuffer); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n", to, int64(1)<<60); err != nil {
		return err
	}
	for chunk := make([]byte, uploadChunk); ; {
		n, err := conn.Write(chunk)
		u.sent.Add(uint64(n))
		if err != nil {
			return fmt.Errorf("connection %s to %s: %w", conn.LocalAddr(), to, err)
		}
	}
}

// broken gives what became of connections that ended by themselves.
func (u *upload) broken() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err
}

// stop ends all of it, and gives what broken does.
func (u *upload) stop() error {
	err := u.broken()
	u.end()
	u.going.Wait()
	return err
}
