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

	"github.com/fairlead/fairlead/vdn"
)

const (
	// askedWait is how long a peer may wait for news.
	askedWait = 30 * time.Second
	// most is how much of an answer is read, in bytes.
	most = 16 << 20
)

// ask keeps up with one peer until ctx ends.
func (f *Federation) ask(ctx context.Context, p vdn.Peer) {
	a := asker{peer: p, ring: &ring{keys: f.o.Keys}}
	defer a.close()
	retry := f.o.Retry
	for {
		offer, err := a.next(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			retry = f.o.Retry
			if offer != nil {
				f.heard(vdn.PeerView{Peer: p, Connected: true, Networks: offer.Networks})
			} else {
				f.again(p)
			}
			continue
		}
		f.failed(p, err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(retry):
		}
		retry = min(2*retry, 16*f.o.Retry)
	}
}

// again is a peer that has nothing new.
func (f *Federation) again(p vdn.Peer) {
	f.mu.Lock()
	v := f.views[p.Domain]
	f.mu.Unlock()
	v.Connected, v.Error = true, ""
	f.heard(v)
}

// failed is a peer that did not answer: what it said before stands.
func (f *Federation) failed(p vdn.Peer, err error) {
	f.mu.Lock()
	v := f.views[p.Domain]
	f.mu.Unlock()
	v.Connected, v.Error = false, err.Error()
	f.heard(v)
}

// asker asks one peer.
type asker struct {
	peer   vdn.Peer
	ring   *ring
	client *http.Client
	tag    string
}

func (a *asker) close() {
	if a.client != nil {
		a.client.CloseIdleConnections()
	}
}

// next is the peer's offer once it is another than the last; nil where it is the
// same for askedWait.
func (a *asker) next(ctx context.Context) (*vdn.Offer, error) {
	if err := a.connect(); err != nil {
		return nil, err
	}
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

// connect has a client with the keys as they are now.
func (a *asker) connect() error {
	p, fresh, err := a.ring.now()
	if err != nil {
		return err
	}
	if fresh {
		a.close()
		a.client = &http.Client{
			Timeout:       askedWait + 10*time.Second,
			Transport:     &http.Transport{TLSClientConfig: p.asClient(a.peer.Domain), ForceAttemptHTTP2: true},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	return nil
}

func (a *asker) read(resp *http.Response) (*vdn.Offer, error) {
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
	if err := Check(a.peer.Domain, &o); err != nil {
		return nil, err
	}
	a.tag = resp.Header.Get("ETag")
	return &o, nil
}

// inWords says what went wrong without the URL, which says nothing new.
func inWords(p vdn.Peer, err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	if strings.Contains(err.Error(), "remote error: tls:") {
		return fmt.Errorf("peer %s does not take our certificate (%w): is its authority among those that the peer was given?", p.Domain, err)
	}
	return fmt.Errorf("peer %s at %s: %w", p.Domain, p.URL, err)
}
