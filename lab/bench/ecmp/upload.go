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

// uploadChunk is what an uploading connection writes at a time.
const uploadChunk = 16 << 10

// upload is traffic that takes all it can get: connections over each of which one
// request goes whose body does not end.
type upload struct {
	conns []*uploading
	end   context.CancelFunc
	going sync.WaitGroup
	mu    sync.Mutex
	err   error
}

// uploading is one of them.
type uploading struct {
	*net.TCPConn
	raw     syscall.RawConn
	written atomic.Int64
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

// arrived is how many bytes the servers have acknowledged: what was written less
// what still waits for that. What is being written now counts for a little less.
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
