// Package federation exchanges networks with other domains' controllers: each
// tells the others what it shares with them, as JSON over mutually authenticated
// TLS, and takes what they share. Who asks is known by the DNS name in its
// certificate, and gets what is shared with that name alone.
//
// What a domain has said stands while it cannot be reached, also over a restart:
// a controller that is away breaks no network.
package federation

import (
	"context"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/vdn"
)

// Domain is the controller that networks are exchanged for.
type Domain interface {
	// Peers are the domains to ask.
	Peers() []vdn.Peer
	// Offer is what that domain is told.
	Offer(domain string) vdn.Offer
	// Wait returns the revision as soon as it is another than that one, or the
	// present one when ctx ends.
	Wait(ctx context.Context, revision uint64) uint64
	// SetOffers tells what is known of all peers.
	SetOffers([]vdn.PeerView)
}

// Options say who we are.
type Options struct {
	Keys Keys
	// Kept is the file for what peers said last.
	Kept string
	Log  *slog.Logger
	// Retry is how long to wait at first until a peer that failed is asked again; it
	// doubles up to 16 times that. A second where 0.
	Retry time.Duration
}

// Federation keeps up with all peers.
type Federation struct {
	domain Domain
	o      Options

	mu    sync.Mutex
	views map[string]vdn.PeerView
	asked map[string]asking
}

// asking is a peer that is being asked.
type asking struct {
	peer vdn.Peer
	stop context.CancelFunc
	done chan struct{}
}

// New reads what peers said last; Run asks them again.
func New(domain Domain, o Options) (*Federation, error) {
	if o.Retry == 0 {
		o.Retry = time.Second
	}
	if _, err := o.Keys.load(); err != nil {
		return nil, err
	}
	kept, err := readKept(o.Kept)
	if err != nil {
		return nil, err
	}
	return &Federation{domain: domain, o: o, views: kept, asked: map[string]asking{}}, nil
}

// Run asks all peers, as they come and go, until ctx ends.
func (f *Federation) Run(ctx context.Context) error {
	defer func() {
		for _, a := range f.asked {
			<-a.done
		}
	}()
	for revision := uint64(0); ctx.Err() == nil; revision = f.domain.Wait(ctx, revision) {
		f.follow(ctx)
	}
	return nil
}

// follow asks those who are peers, and no others.
func (f *Federation) follow(ctx context.Context) {
	peers := map[string]vdn.Peer{}
	for _, p := range f.domain.Peers() {
		peers[p.Domain] = p
	}
	changed := false
	for name, a := range f.asked {
		if p, is := peers[name]; !is || !reflect.DeepEqual(p, a.peer) {
			a.stop()
			<-a.done
			delete(f.asked, name)
		}
	}
	f.mu.Lock()
	for name := range f.views {
		if _, is := peers[name]; !is {
			delete(f.views, name)
			changed = true
		}
	}
	for name, p := range peers {
		if v := f.views[name]; !reflect.DeepEqual(v.Peer, p) {
			f.views[name] = vdn.PeerView{Peer: p, Networks: v.Networks, Error: "not reached yet"}
			changed = true
		}
	}
	f.mu.Unlock()
	for name, p := range peers {
		if _, is := f.asked[name]; !is {
			peerCtx, stop := context.WithCancel(ctx)
			a := asking{p, stop, make(chan struct{})}
			f.asked[name] = a
			go func() {
				defer close(a.done)
				f.ask(peerCtx, p)
			}()
		}
	}
	if changed {
		f.tell()
	}
}

// heard takes a peer's state, and tells and keeps it where it is another.
func (f *Federation) heard(v vdn.PeerView) {
	f.mu.Lock()
	before := f.views[v.Domain]
	f.views[v.Domain] = v
	f.mu.Unlock()
	if reflect.DeepEqual(before, v) {
		return
	}
	if before.Error != v.Error && v.Error != "" {
		f.o.Log.Warn("peer", "domain", v.Domain, "error", v.Error)
	} else if v.Connected && !before.Connected {
		f.o.Log.Info("peer answers", "domain", v.Domain, "networks", len(v.Networks))
	}
	f.tell()
}

// tell hands all states to the domain, and keeps them.
func (f *Federation) tell() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.domain.SetOffers(slices.SortedFunc(maps.Values(f.views), func(a, b vdn.PeerView) int {
		return compare(a.Domain, b.Domain)
	}))
	if err := writeKept(f.o.Kept, f.views); err != nil {
		f.o.Log.Error("what peers said is not kept", "error", err)
	}
}
