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
	"reflect"
	"time"

	"github.com/fairlead/fairlead/vdn"
)

// Domain is the controller that networks are exchanged for. It judges what peers
// share, and keeps it.
type Domain interface {
	// Peers are the domains to ask, with what they said last.
	Peers() []vdn.PeerView
	// Offer is what a domain is told, and the revision after which it may be another.
	Offer(domain string) (vdn.Offer, uint64)
	// Wait returns the revision as soon as it is another than that one, or the
	// present one when ctx ends.
	Wait(ctx context.Context, revision uint64) uint64
	// SetOffers takes what is so of peers, again and again; of one that is none any
	// more it is lost.
	SetOffers(context.Context, []vdn.PeerView) error
}

// Options say who we are.
type Options struct {
	Keys Keys
	Log  *slog.Logger
	// Retry is how long to wait at first until a peer that failed is asked again; it
	// doubles up to 16 times that. A second where 0.
	Retry time.Duration
}

// Federation keeps up with all peers.
type Federation struct {
	domain Domain
	ring   *ring
	o      Options
}

// New checks that the keys can be read.
func New(domain Domain, o Options) (*Federation, error) {
	if o.Retry == 0 {
		o.Retry = time.Second
	}
	ring, err := newRing(o.Keys)
	if err != nil {
		return nil, err
	}
	return &Federation{domain, ring, o}, nil
}

// asking is a peer that is being asked.
type asking struct {
	peer vdn.Peer
	stop context.CancelFunc
	done chan struct{}
}

// Run asks all peers, as they come and go, until ctx ends.
func (f *Federation) Run(ctx context.Context) {
	asked := map[string]asking{}
	for revision := uint64(0); ctx.Err() == nil; revision = f.domain.Wait(ctx, revision) {
		f.follow(ctx, asked)
	}
	for _, a := range asked {
		<-a.done
	}
}

// follow asks those who are peers, and no others.
func (f *Federation) follow(ctx context.Context, asked map[string]asking) {
	peers := map[string]vdn.PeerView{}
	for _, p := range f.domain.Peers() {
		peers[p.Domain] = p
	}
	for name, a := range asked {
		if p, is := peers[name]; !is || !reflect.DeepEqual(p.Peer, a.peer) {
			a.stop()
			<-a.done
			delete(asked, name)
		}
	}
	for name, p := range peers {
		if _, is := asked[name]; !is {
			peerCtx, stop := context.WithCancel(ctx)
			a := asking{p.Peer, stop, make(chan struct{})}
			asked[name] = a
			go func() {
				defer close(a.done)
				f.ask(peerCtx, p)
			}()
		}
	}
}
