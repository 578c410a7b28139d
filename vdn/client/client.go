// Package client asks the controllers of virtually dedicated networks, a method a row
// of their API (docs/vdn.md; GET /v1/openapi.json). One that cannot be reached is left
// for the next.
package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/internal/limit"
)

// Config says where the controllers are, and who asks.
type Config struct {
	// URL is like http://127.0.0.1:7473, https://vdn.example:7473 or
	// unix:///run/fairlead/vdn/api.sock; several are separated by commas.
	URL string
	// TokenFile holds a token of the controllers', and is read for each request; none is
	// sent where empty.
	TokenFile string
	// CAFile holds the certificates that the controllers' must be signed by (PEM); the
	// system's where empty.
	CAFile string
	// Timeout is how long an answer may take, from whichever controller, in addition to what a
	// caller waits for news; DefaultTimeout where 0.
	Timeout time.Duration
}

// DefaultTimeout is Config's.
const DefaultTimeout = 5 * time.Second

// DefaultURL is where a controller answers unless it is told otherwise.
const DefaultURL = "http://127.0.0.1:7473"

// Client asks the controllers of one domain. It may be used concurrently.
type Client struct {
	targets   []*target
	good      atomic.Int32 // the target that has answered last
	reports   reports
	tokenFile string
	tls       *tls.Config
	timeout   time.Duration
	most      int64 // bytes of an answer
}

// mostWords is how much of a refusal is read, in bytes.
const mostWords = 64 << 10

// Error is a controller's no, or that none can be reached (Status 0).
type Error struct {
	Status  int
	Message string
	// Cause is why it could not be asked; nil where it has answered.
	Cause error
}

func (e *Error) Error() string { return e.Message }

// Unwrap gives Cause.
func (e *Error) Unwrap() error { return e.Cause }

// IsUnavailable says that no controller can be reached, or answer now: the same may be
// asked again.
func IsUnavailable(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.Status == 0 || e.Status >= http.StatusInternalServerError)
}

// IsStatus says that the controller has answered with a status.
func IsStatus(err error, status int) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == status
}

// New makes a Client; nothing is asked yet.
func New(c Config) (*Client, error) {
	client := &Client{tokenFile: c.TokenFile, timeout: c.Timeout, most: limit.Answer}
	if client.timeout == 0 {
		client.timeout = DefaultTimeout
	}
	if c.TokenFile != "" {
		if _, err := ReadToken(c.TokenFile); err != nil {
			return nil, err
		}
	}
	if c.CAFile != "" {
		var err error
		if client.tls, err = trust(c.CAFile); err != nil {
			return nil, err
		}
	}
	urls := strings.Split(c.URL, ",")
	for _, one := range urls {
		base, socket, err := parse(strings.TrimSpace(one))
		if err != nil {
			return nil, err
		}
		client.targets = append(client.targets, client.target(base, strings.TrimSpace(one), socket, len(urls)))
	}
	return client, nil
}

// parse gives what paths are added to, and the socket to ask on where it is one.
func parse(where string) (base, socket string, err error) {
	u, err := url.Parse(where)
	switch {
	case err != nil || u.RawQuery != "" || u.Fragment != "":
	case u.User != nil: // errors and logs show where it is
		return "", "", fmt.Errorf("controller, url: %s has a user, whom no controller asks for: use a token file", u.Redacted())
	case u.Scheme == "unix" && u.Host == "" && strings.HasPrefix(u.Path, "/"):
		return "http://controller", u.Path, nil
	case (u.Scheme == "http" || u.Scheme == "https") && u.Host != "":
		return strings.TrimSuffix(where, "/"), "", nil
	}
	return "", "", fmt.Errorf("controller, url: %q is none: write one like %s, https://vdn.example:7473 or unix:///run/fairlead/vdn/api.sock", shown(where), DefaultURL)
}

// shown is a URL without what may be a password or a token: a query, and a user, also
// where it cannot be parsed.
func shown(where string) string {
	where, _, _ = strings.Cut(where, "?")
	if at := strings.LastIndex(where, "@"); at >= 0 {
		return "..." + where[at:]
	}
	return where
}

// ReadToken reads a token's file.
func ReadToken(file string) (string, error) {
	b, err := limit.ReadFile(file, limit.Secret)
	if err != nil {
		return "", fmt.Errorf("token file: %w: write the controller's token there", err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" || strings.ContainsAny(token, "\r\n \t") {
		return "", fmt.Errorf("token file %s: it must hold one word: write the controller's token there", file)
	}
	return token, nil
}

func trust(file string) (*tls.Config, error) {
	pem, err := limit.ReadFile(file, limit.Secret)
	if err != nil {
		return nil, fmt.Errorf("CA file: %w: write the certificate there that the controller's is signed by", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("CA file %s: no certificate in it: write PEM there", file)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

// ask has a controller answer, and reads the answer into out where it has one. wait is
// how long the controller is asked to wait for news. All that can be asked may be asked
// twice, so that one which may have heard is left for another, too.
func (c *Client) ask(ctx context.Context, method, path string, wait time.Duration, in, out any) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout+wait)
	defer cancel()
	r, err := c.request(method, path, in)
	if err != nil {
		return 0, err
	}
	first, n := int(c.good.Load()), len(c.targets)
	var failed []error
	for i := range n {
		at := (first + i) % n
		within := c.timeout + wait
		if i < n-1 {
			within = c.share(n) + wait
		}
		status, err = c.askOne(ctx, c.targets[at], r, within, out)
		if !IsUnavailable(err) {
			c.good.Store(int32(at))
			return status, err
		}
		if failed = append(failed, err); ctx.Err() != nil {
			break
		}
	}
	return status, unreachable(failed)
}

// share is how long one of several controllers may take before the next is asked.
func (c *Client) share(of int) time.Duration { return c.timeout / time.Duration(of) }

// unreachable is that nobody has answered.
func unreachable(failed []error) error {
	if len(failed) == 1 {
		return failed[0]
	}
	texts := make([]string, len(failed))
	for i, err := range failed {
		texts[i] = err.Error()
	}
	return &Error{Message: strings.Join(texts, "; "), Cause: errors.Join(failed...)}
}

// request is what every controller would be asked alike.
type request struct {
	method, path, token string
	body                []byte // JSON; nil for none
}

func (c *Client) request(method, path string, in any) (r request, err error) {
	r = request{method: method, path: path}
	if in != nil {
		if r.body, err = json.Marshal(in); err != nil {
			return r, fmt.Errorf("request: %w", err)
		}
	}
	if c.tokenFile != "" {
		r.token, err = ReadToken(c.tokenFile) // it may be another by now
	}
	return r, err
}

// askOne sends one request to one controller.
func (c *Client) askOne(ctx context.Context, t *target, r request, within time.Duration, out any) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	defer func() { t.note(err) }()
	req, err := http.NewRequestWithContext(ctx, r.method, t.base+r.path, bytes.NewReader(r.body))
	if err != nil {
		return 0, fmt.Errorf("request: %w", err)
	}
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	resp, err := t.http.Do(req)
	if err != nil {
		return 0, t.unreachable(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, mostWords)) // says what it can
		return resp.StatusCode, t.refusal(resp.StatusCode, text)
	}
	text, err := limit.ReadAll(resp.Body, "its answer", c.most)
	var long *limit.TooLong
	if errors.As(err, &long) {
		return 0, fmt.Errorf("controller %s: %w: see to the URL", t.where, err)
	} else if err != nil {
		return 0, t.unreachable(err)
	}
	if out == nil || resp.StatusCode == http.StatusNotModified {
		return resp.StatusCode, nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return 0, fmt.Errorf("controller %s: what answers there is none: %w: see to the URL", t.where, err)
	}
	return resp.StatusCode, nil
}

// unreachable says that the controller could not be reached.
func (t *target) unreachable(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return &Error{Message: fmt.Sprintf("cannot reach the VDN controller at %s: %v", t.where, err), Cause: err}
}

// refusal tells what the controller says.
func (t *target) refusal(status int, text []byte) error {
	var f struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(text, &f) != nil || f.Error == "" {
		f.Error = fmt.Sprintf("controller %s: it answers %d %s", t.where, status, http.StatusText(status))
	} else if status >= http.StatusInternalServerError {
		f.Error = fmt.Sprintf("the VDN controller at %s cannot answer: %s", t.where, f.Error)
	}
	return &Error{Status: status, Message: f.Error}
}
