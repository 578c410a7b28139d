package kubeproxy

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/lab/bench/testbed"
	"github.com/fairlead/fairlead/lab/kube"
)

// requestLimit is the timeout of a request.
const requestLimit = 10 * time.Second

// roundSize is the number of connections per median.
const roundSize = 50

// firstPackets opens connections to the first and the last Service in alternation.
func (m *meter) firstPackets(ctx context.Context) error {
	first, last := kube.ServiceAddr(0), kube.ServiceAddr(m.cluster.services-1)
	for range roundSize { // warm up caches of routes and the like
		if _, _, err := testbed.Request(first, requestLimit); err != nil {
			return err
		}
	}
	for range max(m.Connects/roundSize, 1) {
		var both [2][]float64
		for i := range roundSize {
			for _, which := range []int{i % 2, 1 - i%2} {
				took, _, err := testbed.Request([]netip.Addr{first, last}[which], requestLimit)
				if err := errors.Join(err, ctx.Err()); err != nil {
					return err
				}
				both[which] = append(both[which], float64(took)/float64(time.Microsecond))
			}
		}
		m.into.add("packet first", percentile(both[0], 50))
		m.into.add("packet last", percentile(both[1], 50))
	}
	m.logf("connecting to Service 1 takes %.1f µs, to the last one %.1f µs",
		percentile(m.into["packet first"], 50), percentile(m.into["packet last"], 50))
	return nil
}

// stream is a steady stream of requests to a Service.
type stream struct {
	quit    chan struct{}
	running sync.WaitGroup
	sent    atomic.Int64
	lost    atomic.Int64
	mu      sync.Mutex
	err     error // the first error of a request
}

// streams is the number of concurrent requests.
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
				_, lost, err := testbed.Request(to, requestLimit)
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

// percentile returns a percentile of values, which must not be empty.
func percentile(values []float64, percent int) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)-1)*percent/100]
}
