package kubeproxy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/kube"
)

// request opens a connection to a Service, takes the byte that the server gives,
// and says how long connecting took and how many packets had to be sent again.
func request(to netip.Addr, limit time.Duration) (took time.Duration, lost uint32, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, 0, err
	}
	defer unix.Close(fd)
	for _, option := range []int{unix.SO_SNDTIMEO, unix.SO_RCVTIMEO} {
		t := unix.NsecToTimeval(limit.Nanoseconds())
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &t); err != nil {
			return 0, 0, err
		}
	}
	// The port is free again as soon as the connection is closed.
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	for err = unix.EINTR; err == unix.EINTR; {
		err = unix.Connect(fd, &unix.SockaddrInet4{Addr: to.As4(), Port: 80})
	}
	took = time.Since(began)
	if err != nil && err != unix.EISCONN && err != unix.EALREADY {
		return took, 0, fmt.Errorf("connect to %s: %w", to, err)
	}
	var b [1]byte
	for err = unix.EINTR; err == unix.EINTR; {
		_, err = unix.Read(fd, b[:])
	}
	if err != nil {
		return took, 0, fmt.Errorf("an answer of %s: %w", to, err)
	}
	info, err := unix.GetsockoptTCPInfo(fd, unix.SOL_TCP, unix.TCP_INFO)
	if err != nil {
		return took, 0, err
	}
	return took, info.Total_retrans, nil
}

// requestLimit is how long an answer may take.
const requestLimit = 10 * time.Second

// roundSize is how many connections one median is of.
const roundSize = 50

// firstPackets opens connections to the first and to the last Service in turns.
func (m *meter) firstPackets(ctx context.Context) error {
	first, last := kube.ServiceAddr(0), kube.ServiceAddr(m.cluster.services-1)
	for range roundSize { // routes and the like are cached afterwards
		if _, _, err := request(first, requestLimit); err != nil {
			return err
		}
	}
	for range max(m.Connects/roundSize, 1) {
		var both [2][]float64
		for i := range roundSize {
			for _, which := range []int{i % 2, 1 - i%2} {
				took, _, err := request([]netip.Addr{first, last}[which], requestLimit)
				if err := errors.Join(err, ctx.Err()); err != nil {
					return err
				}
				both[which] = append(both[which], float64(took)/float64(time.Microsecond))
			}
		}
		m.into.add("packet first", percentile(both[0], 50))
		m.into.add("packet last", percentile(both[1], 50))
	}
	m.say("connecting to Service 1 takes %.1f µs, to the last one %.1f µs",
		percentile(m.into["packet first"], 50), percentile(m.into["packet last"], 50))
	return nil
}

// stream is a steady one of requests to a Service.
type stream struct {
	quit    chan struct{}
	running sync.WaitGroup
	sent    atomic.Int64
	lost    atomic.Int64
	mu      sync.Mutex
	err     error // of the first request that failed
}

// streams is how many requests are under way at a time.
const streams = 4

func newStream(to netip.Addr) *stream {
	s := &stream{quit: make(chan struct{})}
	for range streams {
		s.running.Go(func() {
			for {
				select {
				case <-s.quit:
					return
				case <-time.After(2 * time.Millisecond):
				}
				_, lost, err := request(to, requestLimit)
				s.sent.Add(1)
				if err == nil && lost == 0 {
					continue
				}
				s.lost.Add(1)
				s.mu.Lock()
				if s.err == nil {
					s.err = err
				}
				s.mu.Unlock()
			}
		})
	}
	return s
}

func (s *stream) stop() {
	close(s.quit)
	s.running.Wait()
}

// percentile gives that of values, of which there must be one.
func percentile(values []float64, percent int) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)-1)*percent/100]
}
