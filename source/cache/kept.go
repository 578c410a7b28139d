// Package cache lets an agent start with the last known state while its API server is
// unreachable. A Source wraps the cluster's source: it occasionally writes the agent's
// state to a file, and publishes that state if the cluster cannot be read and no snapshot
// has arrived yet. It caches neither passwords nor the drain states of load balancers.
package cache

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/source"
	"github.com/fairlead/fairlead/source/crd"
)

// Of is the wrapped source: a kube.Source.
type Of interface {
	source.Source
	Problems() []problem.Problem
	// Unread reports whether what it follows cannot be read at present.
	Unread() bool
}

// Config configures a Source.
type Config struct {
	File string
	// Limit is the maximum age of the cached state when the agent starts.
	Limit time.Duration
	Log   *slog.Logger
}

// Intervals: between checks for work, and the minimum between two writes. After a slow
// write the pause is longer, so that writing never takes more than 2% of one CPU.
const (
	look       = 200 * time.Millisecond
	writePause = 10 * time.Second
	writeShare = 50
)

// Source caches another source.
type Source struct {
	Config
	of Of

	mu      sync.Mutex
	live    *source.Snapshot // the latest snapshot; nil before the first
	peers   []crd.Peer
	onPeers func([]crd.Peer) []problem.Problem
	passed  bool              // peers were passed on
	wrong   []problem.Problem // problems with the cached peers
	changed bool              // since the last write
	good    time.Time         // when the cluster was last readable
}

// New creates a Source that wraps another; see Before.
func New(c Config) *Source { return &Source{Config: c} }

// OnPeers returns the callback to pass to the cluster's source instead of then.
func (s *Source) OnPeers(then func([]crd.Peer) []problem.Problem) func([]crd.Peer) []problem.Problem {
	if s.onPeers = then; then == nil {
		return nil // nil means that peers are not read
	}
	return func(now []crd.Peer) []problem.Problem {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.passed, s.changed = true, s.changed || !samePeers(s.peers, now)
		s.peers = withoutPasswords(now)
		return then(now)
	}
}

// Before sets the wrapped source; it must be called once, before Run.
func (s *Source) Before(of Of) *Source {
	s.of = of
	return s
}

// Run implements source.Source.
func (s *Source) Run(ctx context.Context, publish func(source.Snapshot)) error {
	if publish == nil {
		return s.of.Run(ctx, nil) // nobody receives snapshots
	}
	ended := make(chan error, 1)
	go func() { ended <- s.of.Run(ctx, s.take(publish)) }()
	last, err := s.read()
	if err != nil {
		s.Log.Info("no cached state to start from while the API server is unreachable", "error", err)
	}
	tick := time.NewTicker(look)
	defer tick.Stop()
	var next time.Time // time of the next write
	var given *source.Snapshot
	for {
		select {
		case err := <-ended:
			s.write(time.Now())
			return err
		case now := <-tick.C:
			if last != nil {
				last, given = s.stand(last, given, publish)
			}
			if now.After(next) {
				next = s.write(now)
			}
		}
	}
}

// take records each snapshot and passes it on.
func (s *Source) take(publish func(source.Snapshot)) func(source.Snapshot) {
	return func(now source.Snapshot) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if was := s.live; was == nil || !slices.Equal(was.Services, now.Services) || was.Advertisements != now.Advertisements ||
			!slices.Equal(was.Balancers, now.Balancers) || !slices.Equal(was.Senders, now.Senders) ||
			!slices.Equal(was.Quarantines, now.Quarantines) {
			s.changed = true
		}
		s.live = &now
		publish(now)
	}
}

// stand publishes the cached state if the cluster cannot be read, and again if its problems
// change. It returns nil for it once the cluster was read.
func (s *Source) stand(last *state, given *source.Snapshot, publish func(source.Snapshot)) (*state, *source.Snapshot) {
	unread, problems := s.of.Unread(), s.of.Problems()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live != nil {
		return nil, nil
	}
	if given == nil && !unread {
		return last, nil
	}
	if !s.passed && s.onPeers != nil {
		s.passed, s.wrong = true, s.onPeers(last.peers())
	}
	now := last.snapshot(slices.Concat(problems, s.wrong, []problem.Problem{{Object: "Services", Message: fmt.Sprintf(
		"have not been read since this agent started: what its predecessor read last, at %s, is served", last.at.UTC().Format(time.RFC3339))}}))
	if given != nil && given.Equal(now) {
		return last, given
	}
	if given == nil {
		s.Log.Warn("cannot reach the API server, serving from the cached state", "asOf", last.at, "services", len(last.Services))
	}
	publish(now)
	return last, &now
}

// write updates the file and returns when to check again. The file's modification time is
// when the cluster was last readable.
func (s *Source) write(now time.Time) (next time.Time) {
	unread := s.of.Unread()
	s.mu.Lock()
	live, peers, changed := s.live, s.peers, s.changed
	if live != nil && (!unread || s.good.IsZero()) {
		s.good = now
	}
	s.changed = false
	s.mu.Unlock()
	if live == nil {
		return now
	}
	var err error
	if changed {
		err = stateOf(*live, peers).writeAt(s.File, s.good)
	} else {
		err = os.Chtimes(s.File, s.good, s.good)
	}
	if err != nil {
		s.mu.Lock()
		s.changed = true
		s.mu.Unlock()
		s.Log.Warn("failed to cache the state for a start without the API server, will retry", "error", err)
	}
	return now.Add(max(writePause, writeShare*time.Since(now)))
}
