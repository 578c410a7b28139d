// Package webhook tells a program of the operator's which prefixes are to be led
// to which balancers, by HTTP.
package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/advertise/cloud"
	"github.com/fairlead/fairlead/internal/limit"
)

// The headers of a request.
const (
	// HeaderTime is when it was signed, in seconds of Unix.
	HeaderTime = "Fairlead-Time"
	// HeaderSignature is "sha256=" and the HMAC of HeaderTime, a dot and the body.
	HeaderSignature = "Fairlead-Signature"
	// HeaderKey is the same for two requests that say the same.
	HeaderKey = "Idempotency-Key"
)

// Config says who is told.
type Config struct {
	URL string
	// Secret signs what is sent; empty: it is not signed.
	Secret string
	Owner  string
	// Node is the one whose offers are told by itself; empty: all nodes'.
	Node string
}

// State is the body of a request: all that is to be, also where it is nothing.
type State struct {
	Owner string `json:"owner"`
	// Node: the state is that of what this node offers, and no other's.
	Node   string  `json:"node,omitempty"`
	Routes []Route `json:"routes"`
}

// Route is a prefix and the balancers to lead it to, sorted.
type Route struct {
	Prefix   netip.Prefix `json:"prefix"`
	NextHops []cloud.Hop  `json:"nextHops"`
}

// Answer may be the body of an answer of 2xx.
type Answer struct {
	// Refused says by prefix why it is not led as told: also one that is not in the
	// state, and is still led.
	Refused map[netip.Prefix]string `json:"refused"`
}

// Provider is a cloud.Provider.
type Provider struct {
	c      Config
	host   string // of the URL
	client *http.Client
}

var _ cloud.Provider = (*Provider)(nil)

// most is how much of an answer is read, in bytes.
const most = 1 << 20

// mostWords is how much of a refusal is read, in bytes.
const mostWords = 4096

// New checks a Config.
func New(c Config) (*Provider, error) {
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("webhook: its URL is not a URL of http or https") // which may hold a password
	}
	if err := cloud.CheckOwner(c.Owner); err != nil {
		return nil, err
	}
	// A POST that is sent elsewhere would become a GET.
	never := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Provider{c, u.Host, &http.Client{Timeout: 30 * time.Second, CheckRedirect: never}}, nil
}

// Name is "webhook".
func (p *Provider) Name() string { return "webhook" }

// Sync tells the whole state.
func (p *Provider) Sync(ctx context.Context, offers []cloud.Offer) (cloud.Refused, error) {
	s := State{Owner: p.c.Owner, Node: p.c.Node, Routes: []Route{}}
	hops := cloud.Hops(offers)
	for _, prefix := range cloud.Prefixes(hops) {
		s.Routes = append(s.Routes, Route{prefix, hops[prefix]})
	}
	body, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("webhook: %w", err)
	}
	answer, err := p.post(ctx, body)
	if err != nil {
		return nil, err
	}
	// A prefix that is refused and that nobody offers is one that it still leads.
	var undone cloud.Undone
	for prefix, why := range answer.Refused {
		if len(hops[prefix]) == 0 {
			undone.TryFor(prefix, func() error { return fmt.Errorf("webhook: %s refuses to withdraw it: %.200s", p.host, why) })
		}
	}
	return cloud.Refused(answer.Refused), undone.Err()
}

func (p *Provider) post(ctx context.Context, body []byte) (a Answer, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.c.URL, bytes.NewReader(body))
	if err != nil {
		return a, errors.New("webhook: its URL cannot be asked")
	}
	now := strconv.FormatInt(time.Now().Unix(), 10)
	sum := sha256.Sum256(body)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(HeaderTime, now)
	r.Header.Set(HeaderKey, hex.EncodeToString(sum[:]))
	if p.c.Secret != "" {
		r.Header.Set(HeaderSignature, Sign(p.c.Secret, now, body))
	}
	resp, err := p.client.Do(r)
	if err != nil {
		return a, fmt.Errorf("webhook: %w", unnamed(r.URL, err))
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode/100 != 2 {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, mostWords)) // says what it can
		return a, refusal(resp, text)
	}
	text, err := limit.ReadAll(resp.Body, "the answer", most)
	if err != nil {
		return a, fmt.Errorf("webhook: %w", err)
	}
	if len(bytes.TrimSpace(text)) == 0 || !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		return a, nil
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return a, fmt.Errorf("webhook: the answer cannot be read: %w", err)
	}
	return a, nil
}

// unnamed has an error of http.Client name the host alone: the rest of a URL may
// hold passwords and tokens, and errors show in logs and status.
func unnamed(u *url.URL, err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("%s: %w", u.Host, e.Err)
	}
	return err
}

// refusal says what an answer means that is none of 2xx.
func refusal(resp *http.Response, text []byte) error {
	words := fmt.Sprintf("webhook: %s answered %s: %.200s", resp.Request.URL.Host, resp.Status,
		cmp.Or(strings.TrimSpace(string(text)), "nothing"))
	if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
		words += " (is the secret the same on both sides?)"
	}
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err == nil && seconds > 0 {
		return &cloud.Busy{After: time.Duration(min(seconds, 3600)) * time.Second, Err: errors.New(words)}
	}
	return errors.New(words)
}

// Sign gives HeaderSignature for a body at a time.
func Sign(secret, at string, body []byte) string {
	m := hmac.New(sha256.New, []byte(secret))
	_, _ = io.WriteString(m, at+".")
	_, _ = m.Write(body)
	return "sha256=" + hex.EncodeToString(m.Sum(nil))
}
