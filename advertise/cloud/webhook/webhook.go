// Package webhook sends the desired routes to a program of the operator by HTTP.
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

// Request headers.
const (
	// HeaderTime is the time of the signature, in Unix seconds.
	HeaderTime = "Fairlead-Time"
	// HeaderSignature is "sha256=" and the HMAC of HeaderTime, a dot and the body.
	HeaderSignature = "Fairlead-Signature"
	// HeaderKey is the same for two requests with the same content.
	HeaderKey = "Idempotency-Key"
)

// Config configures a Provider.
type Config struct {
	URL string
	// Secret signs requests; empty: not signed.
	Secret string
	Owner  string
	// Node is the only node whose offers are sent; empty: those of all nodes.
	Node string
}

// State is the body of a request: the complete desired state, even if it is empty.
type State struct {
	Owner string `json:"owner"`
	// Node means that the state only contains what this node offers.
	Node   string  `json:"node,omitempty"`
	Routes []Route `json:"routes"`
}

// Route is a prefix and the load balancers to route it to, sorted.
type Route struct {
	Prefix   netip.Prefix `json:"prefix"`
	NextHops []cloud.Hop  `json:"nextHops"`
}

// Answer is the optional body of a 2xx response.
type Answer struct {
	// Refused contains, by prefix, why it is not routed as requested. This includes
	// prefixes that are not in the state but are still routed.
	Refused map[netip.Prefix]string `json:"rejected"`
}

// Provider implements cloud.Provider.
type Provider struct {
	c      Config
	host   string // of the URL
	client *http.Client
}

var _ cloud.Provider = (*Provider)(nil)

// most limits how much of a response is read, in bytes.
const most = 1 << 20

// mostWords limits how much of an error response is read, in bytes.
const mostWords = 4096

// New validates a Config and returns a Provider.
func New(c Config) (*Provider, error) {
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("webhook: its URL is not a URL of http or https") // it may contain a password
	}
	if err := cloud.CheckOwner(c.Owner); err != nil {
		return nil, err
	}
	// A redirected POST would become a GET.
	never := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Provider{c, u.Host, &http.Client{Timeout: 30 * time.Second, CheckRedirect: never}}, nil
}

// Name returns "webhook".
func (p *Provider) Name() string { return "webhook" }

// Sync sends the complete state.
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
	// A rejected prefix that nobody offers is still routed.
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
		return a, errors.New("webhook: invalid URL")
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
		text, _ := io.ReadAll(io.LimitReader(resp.Body, mostWords)) // as far as readable
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

// unnamed makes an error of http.Client contain only the host: the rest of a URL may
// contain passwords and tokens, and errors appear in logs and status.
func unnamed(u *url.URL, err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("%s: %w", u.Host, e.Err)
	}
	return err
}

// refusal explains a response other than 2xx.
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

// Sign returns HeaderSignature for a body at a given time.
func Sign(secret, at string, body []byte) string {
	m := hmac.New(sha256.New, []byte(secret))
	_, _ = io.WriteString(m, at+".")
	_, _ = m.Write(body)
	return "sha256=" + hex.EncodeToString(m.Sum(nil))
}
