// Package cache lets an agent that starts while its API server is away begin with
// what that said last. A Source stands before the cluster's: it writes what the
// agent serves to a file, seldom, and gives it out where the cluster cannot be read
// and no snapshot has come yet. Passwords are not kept, nor which balancers drain.
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

// Of is whose snapshots are kept: a kube.Source.
type Of interface {
	source.Source
	Problems() []problem.Problem
	// Unread says that what it follows cannot be read now.
	Unread() bool
}

// Config says what is kept where.
type Config struct {
	File string
	// Limit is how long ago the cluster may have been read last for its word to
	// count when the agent starts.
	Limit time.Duration
	Log   *slog.Logger
}

// Pauses: between looks whether there is anything to do, and the least between two
// writes. A write that takes long is paused for longer, so that it never takes more
// than a fiftieth of a processor.
const (
	look       = 200 * time.Millisecond
	writePause = 10 * time.Second
	writeShare = 50
)

// Source is a source that is kept.
type Source struct {
	Config
	of Of

	mu      sync.Mutex
	live    *source.Snapshot // the latest that came; nil before
	peers   []crd.Peer
	onPeers func([]crd.Peer) []problem.Problem
	told    bool              // of peers
	wrong   []problem.Problem // with the peers that were kept
	changed bool              // since the file was written
	good    time.Time         // when the cluster could be read last
}

// New puts a Source before another.
func New(c Config) *Source { return &Source{Config: c} }

// OnPeers gives what the cluster's source is to tell of peers in place of then.
func (s *Source) OnPeers(then func([]crd.Peer) []problem.Problem) func([]crd.Peer) []problem.Problem {
	if s.onPeers = then; then == nil {
		return nil // a nil OnPeers has peers not asked for
	}
	return func(now []crd.Peer) []problem.Problem {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.told, s.changed = true, s.changed || !samePeers(s.peers, now)
		s.peers = withoutPasswords(now)
		return then(now)
	}
}

// Before says whose snapshots they are; it is called once, before Run.
func (s *Source) Before(of Of) *Source {
	s.of = of
	return s
}

// Run implements source.Source.
func (s *Source) Run(ctx context.Context, publish func(source.Snapshot)) error {
	if publish == nil {
		return s.of.Run(ctx, nil) // nobody serves any
	}
	ended := make(chan error, 1)
	go func() { ended <- s.of.Run(ctx, s.take(publish)) }()
	last, err := s.read()
	if err != nil {
		s.Log.Info("nothing to begin with, should the API server be away", "reason", err)
	}
	tick := time.NewTicker(look)
	defer tick.Stop()
	var next time.Time // to write
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

// take notes what comes, and passes it on.
func (s *Source) take(publish func(source.Snapshot)) func(source.Snapshot) {
	return func(now source.Snapshot) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if was := s.live; was == nil || !slices.Equal(was.Services, now.Services) || was.Announcements != now.Announcements ||
			!slices.Equal(was.Balancers, now.Balancers) || !slices.Equal(was.Senders, now.Senders) {
			s.changed = true
		}
		s.live = &now
		publish(now)
	}
}

// stand gives out what was kept where the cluster cannot be read, and again where
// the problems with that are others. It gives nil for it once the cluster was read.
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
	if !s.told && s.onPeers != nil {
		s.told, s.wrong = true, s.onPeers(last.peers())
	}
	now := last.snapshot(slices.Concat(problems, s.wrong, []problem.Problem{{Object: "Services", Message: fmt.Sprintf(
		"have not been read since this agent started; what its predecessor read last, at %s, is served", last.at.UTC().Format(time.RFC3339))}}))
	if given != nil && given.Equal(now) {
		return last, given
	}
	if given == nil {
		s.Log.Warn("the API server is away; what was kept is served", "asOf", last.at, "services", len(last.Services))
	}
	publish(now)
	return last, &now
}

// write brings the file up to date, and says when to look again. Its time is when
// the cluster could be read last.
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
		s.Log.Warn("what is served cannot be kept for a start without the API server; it is tried again", "error", err)
	}
	return now.Add(max(writePause, writeShare*time.Since(now)))
}
