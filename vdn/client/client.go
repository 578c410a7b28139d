// Package client is a client for the VDN controllers, with one method per operation of
// their API (docs/vdn.md; GET /v1/openapi.json). If a controller is unreachable, the client
// tries the next one.
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

// Config configures the controller URLs and the client's credentials.
type Config struct {
	// URL is a URL like http://127.0.0.1:7473, https://vdn.example:7473 or
	// unix:///run/fairlead/vdn/api.sock, or several separated by commas.
	URL string
	// TokenFile contains the bearer token and is read for each request. If empty, no token
	// is sent.
	TokenFile string
	// CAFile contains the CA certificates (PEM) that verify the controllers. If empty, the
	// system's are used.
	CAFile string
	// Timeout limits the time for a response across all controllers, in addition to the
	// time that a caller waits for changes. 0 means DefaultTimeout.
	Timeout time.Duration
}

// DefaultTimeout is the default of Config.Timeout.
const DefaultTimeout = 5 * time.Second

// DefaultURL is the default URL of a controller.
const DefaultURL = "http://127.0.0.1:7473"

// Client is a client of one domain's controllers. It is safe for concurrent use.
type Client struct {
	targets   []*target
	good      atomic.Int32 // index of the target that last responded
	reports   reports
	tokenFile string
	tls       *tls.Config
	timeout   time.Duration
	most      int64 // maximum response size in bytes
}

// mostWords limits how much of an error response is read, in bytes.
const mostWords = 64 << 10

// Error is an error response of a controller, or a failure to reach any (Status 0).
type Error struct {
	Status  int
	Message string
	// Cause is why no controller could be reached; nil if one responded.
	Cause error
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns Cause.
func (e *Error) Unwrap() error { return e.Cause }

// IsUnavailable reports whether no controller can be reached or respond at present, so that
// the request may be retried.
func IsUnavailable(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.Status == 0 || e.Status >= http.StatusInternalServerError)
}

// IsStatus reports whether a controller responded with a status.
func IsStatus(err error, status int) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == status
}

// New creates a Client without connecting.
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

// parse returns the base URL for paths, and the socket path of a unix URL.
func parse(where string) (base, socket string, err error) {
	u, err := url.Parse(where)
	switch {
	case err != nil || u.RawQuery != "" || u.Fragment != "":
	case u.User != nil: // its credentials would appear in errors and logs
		return "", "", fmt.Errorf("controller, url: %s has user information, which controllers do not support: use a token file", u.Redacted())
	case u.Scheme == "unix" && u.Host == "" && strings.HasPrefix(u.Path, "/"):
		return "http://controller", u.Path, nil
	case (u.Scheme == "http" || u.Scheme == "https") && u.Host != "":
		return strings.TrimSuffix(where, "/"), "", nil
	}
	return "", "", fmt.Errorf("controller, url: %q is not a URL: use one such as %s, https://vdn.example:7473 or unix:///run/fairlead/vdn/api.sock", shown(where), DefaultURL)
}

// shown returns a URL without parts that may contain a password or token: the query and the
// user, even if the URL cannot be parsed.
func shown(where string) string {
	where, _, _ = strings.Cut(where, "?")
	if at := strings.LastIndex(where, "@"); at >= 0 {
		return "..." + where[at:]
	}
	return where
}

// ReadToken reads a token file.
func ReadToken(file string) (string, error) {
	b, err := limit.ReadFile(file, limit.Secret)
	if err != nil {
		return "", fmt.Errorf("token file: %w: write the controller's token there", err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" || strings.ContainsAny(token, "\r\n \t") {
		return "", fmt.Errorf("token file %s: want one word: write the controller's token there", file)
	}
	return token, nil
}

func trust(file string) (*tls.Config, error) {
	pem, err := limit.ReadFile(file, limit.Secret)
	if err != nil {
		return nil, fmt.Errorf("CA file: %w: write the certificate of the controller's CA there", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("CA file %s: no certificate found: write it there in PEM format", file)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

// ask sends a request and decodes the response body, if any, into out. wait is how long the
// controller may wait for changes. All requests are idempotent, so a request that a
// controller may have received can be repeated with another one.
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

// share returns the timeout for each of several controllers.
func (c *Client) share(of int) time.Duration { return c.timeout / time.Duration(of) }

// unreachable combines the errors of all controllers.
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

// request is a request that is the same for every controller.
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
		r.token, err = ReadToken(c.tokenFile) // the file may have changed
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
		text, _ := io.ReadAll(io.LimitReader(resp.Body, mostWords)) // a partial body is good enough
		return resp.StatusCode, t.refusal(resp.StatusCode, text)
	}
	text, err := limit.ReadAll(resp.Body, "its answer", c.most)
	var long *limit.TooLong
	if errors.As(err, &long) {
		return 0, fmt.Errorf("controller %s: %w: check the URL", t.where, err)
	} else if err != nil {
		return 0, t.unreachable(err)
	}
	if out == nil || resp.StatusCode == http.StatusNotModified {
		return resp.StatusCode, nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return 0, fmt.Errorf("controller %s: invalid response: %w: check the URL", t.where, err)
	}
	return resp.StatusCode, nil
}

// unreachable returns the error for a controller that cannot be reached.
func (t *target) unreachable(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return &Error{Message: fmt.Sprintf("cannot reach the VDN controller at %s: %v", t.where, err), Cause: err}
}

// refusal returns the error that a controller responded with.
func (t *target) refusal(status int, text []byte) error {
	var f struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(text, &f) != nil || f.Error == "" {
		f.Error = fmt.Sprintf("controller %s: it answers %d %s", t.where, status, http.StatusText(status))
	} else if status >= http.StatusInternalServerError {
		f.Error = fmt.Sprintf("the VDN controller at %s is unavailable: %s", t.where, f.Error)
	}
	return &Error{Status: status, Message: f.Error}
}
