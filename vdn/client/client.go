// Package client asks a controller of virtually dedicated networks, a method a row
// of its API (docs/vdn.md; GET /v1/openapi.json).
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
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/limit"
)

// Config says where the controller is, and who asks.
type Config struct {
	// URL is like http://127.0.0.1:7473, https://vdn.example:7473 or
	// unix:///run/fairlead/vdn/api.sock.
	URL string
	// TokenFile holds the controller's token, and is read for each request; none is
	// sent where empty.
	TokenFile string
	// CAFile holds the certificates that the controller's must be signed by (PEM);
	// the system's where empty.
	CAFile string
	// Timeout is how long one answer may take, beside what a caller waits for news;
	// DefaultTimeout where 0.
	Timeout time.Duration
}

// DefaultTimeout is Config's.
const DefaultTimeout = 5 * time.Second

// DefaultURL is where a controller answers unless it is told otherwise.
const DefaultURL = "http://127.0.0.1:7473"

// Client asks one controller. It may be used concurrently.
type Client struct {
	base      string
	where     string
	tokenFile string
	timeout   time.Duration
	most      int64 // bytes of an answer
	http      *http.Client
}

// mostWords is how much of a refusal is read, in bytes.
const mostWords = 64 << 10

// Error is a controller's no, or that it is away (Status 0).
type Error struct {
	Status  int
	Message string
	// Cause is why it could not be asked; nil where it has answered.
	Cause error
}

func (e *Error) Error() string { return e.Message }

// Unwrap gives Cause.
func (e *Error) Unwrap() error { return e.Cause }

// IsUnavailable says that the controller is away, or cannot answer now: the same
// may be asked again.
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
	base, socket, err := parse(c.URL)
	if err != nil {
		return nil, err
	}
	client := &Client{base: base, where: c.URL, tokenFile: c.TokenFile, timeout: c.Timeout, most: limit.Answer}
	if client.timeout == 0 {
		client.timeout = DefaultTimeout
	}
	if c.TokenFile != "" {
		if _, err := ReadToken(c.TokenFile); err != nil {
			return nil, err
		}
	}
	transport := &http.Transport{IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 16, ForceAttemptHTTP2: true}
	if socket != "" {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
	}
	if c.CAFile != "" {
		if transport.TLSClientConfig, err = trust(c.CAFile); err != nil {
			return nil, err
		}
	}
	client.http = &http.Client{Transport: transport}
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

// ask sends one request, and reads the answer into out where it has one. wait is
// how long the controller is asked to wait for news.
func (c *Client) ask(ctx context.Context, method, path string, wait time.Duration, in, out any) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout+wait)
	defer cancel()
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return 0, fmt.Errorf("request: %w", err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return 0, fmt.Errorf("request: %w", err)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.tokenFile != "" {
		token, err := ReadToken(c.tokenFile) // it may be another by now
		if err != nil {
			return 0, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, c.away(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, mostWords)) // says what it can
		return resp.StatusCode, c.refusal(resp.StatusCode, text)
	}
	text, err := limit.ReadAll(resp.Body, "its answer", c.most)
	var long *limit.TooLong
	if errors.As(err, &long) {
		return 0, fmt.Errorf("controller %s: %w: see to the URL", c.where, err)
	} else if err != nil {
		return 0, c.away(err)
	}
	if out == nil || resp.StatusCode == http.StatusNotModified {
		return resp.StatusCode, nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return 0, fmt.Errorf("controller %s: what answers there is none: %w: see to the URL", c.where, err)
	}
	return resp.StatusCode, nil
}

// away tells that the controller could not be asked.
func (c *Client) away(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return &Error{Message: fmt.Sprintf("controller %s: it is away: %v: is \"fairlead vdn\" running there?", c.where, err), Cause: err}
}

// refusal tells what the controller says.
func (c *Client) refusal(status int, text []byte) error {
	var f struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(text, &f) != nil || f.Error == "" {
		f.Error = fmt.Sprintf("controller %s: it answers %d %s", c.where, status, http.StatusText(status))
	}
	return &Error{Status: status, Message: f.Error}
}
