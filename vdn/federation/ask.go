package federation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/sleep"
	"github.com/fairlead/fairlead/vdn"
)

const (
	// askedWait is how long a peer may wait for changes before it responds.
	askedWait = 30 * time.Second
	// pace is the minimum delay between a response and the next request.
	pace = 50 * time.Millisecond
	// most limits the size of a response, in bytes.
	most = 16 << 20
	// mostNetworks limits the networks that a domain may share.
	mostNetworks = 4096
)

// ask follows one peer until ctx ends. While the peer does not respond, its last offer
// stays valid.
func (f *Federation) ask(ctx context.Context, view vdn.PeerView) {
	a := offerClient{peer: view.Peer, ring: f.ring}
	defer a.close()
	for retry := f.o.Retry; ; {
		offer, err := a.next(ctx)
		if ctx.Err() != nil {
			return
		}
		if offer != nil {
			view.Networks = offer.Networks
		}
		f.storeOffer(ctx, &view, err)
		pause := pace
		if err != nil {
			pause, retry = retry, min(2*retry, 16*f.o.Retry)
		} else {
			retry = f.o.Retry
		}
		if !sleep.For(ctx, pause) {
			return
		}
	}
}

// storeOffer passes on the state of a peer even if it is unchanged, so that an offer that could
// not be stored, or was lost when the peer was deleted and added again, is restored.
func (f *Federation) storeOffer(ctx context.Context, v *vdn.PeerView, err error) {
	was, connected := v.Error, v.Connected
	v.Error, v.Connected = "", err == nil
	if err != nil {
		v.Error = err.Error()
	}
	switch {
	case v.Error != was && err != nil:
		f.o.Log.Warn("peer", "domain", v.Domain, "error", err)
	case v.Connected != connected:
		f.o.Log.Info("peer answers", "domain", v.Domain, "networks", len(v.Networks))
	}
	if err := f.domain.SetOffers(ctx, []vdn.PeerView{*v}); err != nil {
		f.o.Log.Error("failed to store the offer of a peer", "domain", v.Domain, "error", err)
	}
}

// offerClient requests offers from one peer.
type offerClient struct {
	peer   vdn.Peer
	ring   *ring
	keys   *pair // used by client
	client *http.Client
	tag    string
}

func (a *offerClient) close() {
	if a.client != nil {
		a.client.CloseIdleConnections()
	}
}

// next returns the peer's offer once it differs from the last one, or nil if it stays the
// same for askedWait.
func (a *offerClient) next(ctx context.Context) (*vdn.Offer, error) {
	a.connect()
	u, err := url.JoinPath(a.peer.URL, "/v1/offer")
	if err != nil {
		return nil, fmt.Errorf("peer %s: url %q: %w", a.peer.Domain, a.peer.URL, err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u+"?wait="+askedWait.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("peer %s: url %q: %w", a.peer.Domain, a.peer.URL, err)
	}
	r.Header.Set("If-None-Match", a.tag)
	resp, err := a.client.Do(r)
	if err != nil {
		return nil, inWords(a.peer, err)
	}
	defer func() { _ = resp.Body.Close() }()
	return a.read(resp)
}

// connect creates a client if the keys changed.
func (a *offerClient) connect() {
	keys := a.ring.now()
	if keys == a.keys {
		return
	}
	a.close()
	a.keys = keys
	a.client = &http.Client{
		Timeout:       askedWait + 10*time.Second,
		Transport:     &http.Transport{TLSClientConfig: keys.asClient(a.peer.Domain), ForceAttemptHTTP2: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func (a *offerClient) read(resp *http.Response) (*vdn.Offer, error) {
	if resp.StatusCode == http.StatusNotModified {
		return nil, nil
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	switch {
	case err != nil:
		return nil, inWords(a.peer, err)
	case len(text) > most:
		return nil, fmt.Errorf("peer %s: its offer is longer than %d bytes", a.peer.Domain, most)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("peer %s answered %s: %.200s", a.peer.Domain, resp.Status, strings.TrimSpace(string(text)))
	}
	var o vdn.Offer
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, fmt.Errorf("peer %s: its offer cannot be read: %w", a.peer.Domain, err)
	}
	switch {
	case o.Domain != a.peer.Domain:
		return nil, fmt.Errorf("peer %s identifies itself as %q: check its url", a.peer.Domain, o.Domain)
	case len(o.Networks) > mostNetworks:
		return nil, fmt.Errorf("peer %s shares %d networks: at most %d are taken", a.peer.Domain, len(o.Networks), mostNetworks)
	}
	a.tag = resp.Header.Get("ETag")
	return &o, nil
}

// inWords rewrites an error without the redundant URL.
func inWords(p vdn.Peer, err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	if strings.Contains(err.Error(), "remote error: tls:") {
		return fmt.Errorf("peer %s rejects our certificate (%w): add its CA at the peer", p.Domain, err)
	}
	return fmt.Errorf("peer %s at %s: %w", p.Domain, p.URL, err)
}
