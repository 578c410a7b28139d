package ecmp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/load"
)

// uploadChunk is the size of one write of an uploading connection.
const uploadChunk = 16 << 10

// upload is greedy traffic: each connection sends one request with an endless body.
type upload struct {
	conns []*uploading
	end   context.CancelFunc
	going sync.WaitGroup
	mu    sync.Mutex
	err   error
}

// uploading is one connection of an upload.
type uploading struct {
	*net.TCPConn
	raw     syscall.RawConn
	written atomic.Int64
}

// startUpload opens n connections, which use the client's addresses in rotation.
func startUpload(ctx context.Context, dial load.Dial, locals []netip.Addr, to netip.AddrPort, n int) (*upload, error) {
	ctx, cancel := context.WithCancel(ctx)
	u := &upload{end: cancel}
	for i := range n {
		conn, err := dial(ctx, locals[i%len(locals)], to)
		if err != nil {
			return nil, errors.Join(err, u.stop())
		}
		context.AfterFunc(ctx, func() { conn.Close() })
		c := &uploading{TCPConn: conn.(*net.TCPConn)}
		if c.raw, err = c.SyscallConn(); err != nil {
			return nil, errors.Join(err, u.stop())
		}
		u.conns = append(u.conns, c)
		u.going.Go(func() {
			if err := c.run(to); err != nil && ctx.Err() == nil {
				u.mu.Lock()
				defer u.mu.Unlock()
				u.err = errors.Join(u.err, err)
			}
		})
	}
	return u, nil
}

func (c *uploading) run(to netip.AddrPort) error {
	defer c.Close()
	n, err := fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n", to, int64(1)<<60)
	for chunk := make([]byte, uploadChunk); err == nil; n, err = c.Write(chunk) {
		c.written.Add(int64(n))
	}
	return fmt.Errorf("connection %s to %s: %w", c.LocalAddr(), to, err)
}

// arrived returns how many bytes the backends have acknowledged: the bytes written less
// those not acknowledged yet. A write in progress is slightly undercounted.
func (u *upload) arrived() (bytes int64, err error) {
	for _, c := range u.conns {
		written, waiting := c.written.Load(), 0
		failed := c.raw.Control(func(fd uintptr) { waiting, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
		if err = errors.Join(failed, err); err != nil {
			return 0, errors.Join(err, u.broken())
		}
		bytes += written - int64(waiting)
	}
	return bytes, u.broken()
}

// broken returns the errors of connections that ended by themselves.
func (u *upload) broken() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err
}

// stop ends all connections, and returns what broken does.
func (u *upload) stop() error {
	err := u.broken()
	u.end()
	u.going.Wait()
	return err
}
