package kube

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/fairlead/fairlead/source/crd"
)

// beyond is which Services are read for addresses that they do not have as load
// balancers'. Of others nothing is kept, so that where those are others all Services
// are listed anew.
type beyond struct {
	// reads is how Services are read now, listed how they were when they had been
	// listed last; nil before.
	reads  *atomic.Pointer[crd.Beyond]
	listed *crd.Beyond
	// began is whether a snapshot was made: until then they are read as they are to
	// be.
	began bool
	// again has one element where they may have to be read otherwise.
	again chan struct{}
}

func newBeyond() beyond {
	b := beyond{reads: &atomic.Pointer[crd.Beyond]{}, again: make(chan struct{}, 1)}
	b.reads.Store(&crd.Beyond{})
	return b
}

// wantedBeyond says, with the lock held, how Services are to be read.
func (s *Source) wantedBeyond() *crd.Beyond {
	return crd.BeyondOf(slices.Collect(maps.Values(s.routing.announcements.held)))
}

// followBeyond gives what lists Services with follow, and again where they are to be
// read otherwise.
func (s *Source) followBeyond(follow func(context.Context)) func(context.Context) {
	b := &s.routing.beyond
	s.services.listed = func() { b.listed = b.reads.Load() }
	return func(ctx context.Context) {
		for ctx.Err() == nil {
			s.mu.Lock()
			b.reads.Store(s.wantedBeyond())
			s.mu.Unlock()
			s.listUntilOther(ctx, follow)
		}
	}
}

// listUntilOther runs follow until ctx ends, or Services are to be read otherwise.
func (s *Source) listUntilOther(ctx context.Context, follow func(context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		follow(ctx)
	}()
	defer func() { cancel(); <-ended }()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.routing.beyond.again:
			s.mu.Lock()
			same := s.wantedBeyond().Equal(s.routing.beyond.reads.Load())
			s.mu.Unlock()
			if !same {
				return
			}
		}
	}
}

// beyondRead says, with the lock held, whether what a snapshot is made of has all
// that Announcements ask for. After the first what comes later may come later.
func (s *Source) beyondRead() bool {
	b := &s.routing.beyond
	b.began = b.began || b.listed != nil && b.listed.Equal(s.wantedBeyond())
	return b.began
}
