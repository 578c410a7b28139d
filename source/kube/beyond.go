package kube

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/fairlead/fairlead/source/crd"
)

// beyond tracks which Services are read for their external or cluster addresses. Other
// Services are not cached, so if the selection changes, all Services are listed again.
type beyond struct {
	// reads is the current selection, listed that of the last complete list; nil before.
	reads  *atomic.Pointer[crd.Beyond]
	listed *crd.Beyond
	// began is true once a snapshot was made. Until then, the selection must be current.
	began bool
	// again has one element if the selection may have changed.
	again chan struct{}
}

func newBeyond() beyond {
	b := beyond{reads: &atomic.Pointer[crd.Beyond]{}, again: make(chan struct{}, 1)}
	b.reads.Store(&crd.Beyond{})
	return b
}

// wantedBeyond returns the desired selection. The caller holds the lock.
func (s *Source) wantedBeyond() *crd.Beyond {
	return crd.BeyondOf(slices.Collect(maps.Values(s.routing.advertisements.held)))
}

// followBeyond returns a function that lists Services with follow, and restarts it when the
// selection changes.
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

// listUntilOther runs follow until ctx ends, or the selection changes.
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

// beyondRead reports whether a snapshot has everything that Advertisements require. After
// the first snapshot, changes may arrive later. The caller holds the lock.
func (s *Source) beyondRead() bool {
	b := &s.routing.beyond
	b.began = b.began || b.listed != nil && b.listed.Equal(s.wantedBeyond())
	return b.began
}
