// Package federation exchanges networks with the controllers of other domains. Each
// controller offers the others what it shares with them, as JSON over mutually
// authenticated TLS, and accepts what they share. The DNS name in its certificate
// identifies a client, which receives only what is shared with that name.
//
// A domain's last offer stays valid while the domain is unreachable, and across restarts:
// networks keep working while a controller is unreachable.
package federation

import (
	"context"
	"log/slog"
	"reflect"
	"time"

	"github.com/fairlead/fairlead/vdn"
)

// Domain is the controller that networks are exchanged for. It evaluates and stores what
// peers share.
type Domain interface {
	// Peers returns the domains to query, with their last offers.
	Peers() []vdn.PeerView
	// Offer returns the offer for a domain, and the revision that it is based on.
	Offer(domain string) (vdn.Offer, uint64)
	// Wait returns the revision as soon as it differs from the given one, or the current
	// one when ctx ends.
	Wait(ctx context.Context, revision uint64) uint64
	// SetOffers stores the state of peers. It is called repeatedly, and ignores domains
	// that are no longer peers.
	SetOffers(context.Context, []vdn.PeerView) error
}

// Options configure a Federation.
type Options struct {
	Keys Keys
	Log  *slog.Logger
	// Retry is the initial delay before a failed peer is queried again; it doubles up to 16
	// times that. 0 means one second.
	Retry time.Duration
}

// Federation follows all peers.
type Federation struct {
	domain Domain
	ring   *ring
	o      Options
}

// New creates a Federation. It fails if the keys cannot be read.
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

// asking is a peer that is being followed.
type asking struct {
	peer vdn.Peer
	stop context.CancelFunc
	done chan struct{}
}

// Run follows all peers, including those added later, until ctx ends.
func (f *Federation) Run(ctx context.Context) {
	asked := map[string]asking{}
	for revision := uint64(0); ctx.Err() == nil; revision = f.domain.Wait(ctx, revision) {
		f.follow(ctx, asked)
	}
	for _, a := range asked {
		<-a.done
	}
}

// follow starts and stops goroutines so that exactly the current peers are followed.
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
