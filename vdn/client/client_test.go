package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/limit"
	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
	"github.com/fairlead/fairlead/vdn"
)

// answering returns a client of a controller with a fixed response.
func answering(t *testing.T, status int, body string) *Client {
	t.Helper()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(web.Close)
	c, err := New(Config{URL: web.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAnswersAreBounded(t *testing.T) {
	c := answering(t, http.StatusOK, `["`+strings.Repeat("x", 1000)+`"]`)
	var got []string
	if _, err := c.ask(t.Context(), http.MethodGet, "/", 0, nil, &got); err != nil || len(got) != 1 {
		t.Errorf("%d, %v", len(got), err)
	}
	c.most = 1000
	_, err := c.ask(t.Context(), http.MethodGet, "/", 0, nil, &got)
	var long *limit.TooLong
	if !errors.As(err, &long) || !strings.Contains(err.Error(), "controller "+c.targets[0].where) {
		t.Errorf("%v, want an error that names the controller and the limit", err)
	}
}

func TestRefusalsAreBounded(t *testing.T) {
	c := answering(t, http.StatusConflict, `{"error":"`+strings.Repeat("x", 1<<20)+`"}`)
	_, err := c.ask(t.Context(), http.MethodGet, "/", 0, nil, nil)
	if !IsStatus(err, http.StatusConflict) || len(err.Error()) > mostWords {
		t.Errorf("%d bytes of error, status conflict: %v", len(err.Error()), IsStatus(err, http.StatusConflict))
	}
}

func TestTokenFileIsBounded(t *testing.T) {
	name := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(name, []byte(strings.Repeat("x", limit.Secret+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	var long *limit.TooLong
	if _, err := ReadToken(name); !errors.As(err, &long) {
		t.Errorf("token: %v", err)
	}
	if _, err := trust(name); !errors.As(err, &long) {
		t.Errorf("CA: %v", err)
	}
}

// FuzzAnswer checks that arbitrary responses are decoded or rejected with an error message
// of bounded length.
func FuzzAnswer(f *testing.F) {
	f.Add(200, []byte(`{"revision":1,"slices":[{"name":"science","id":3,"prefixes":["10.5.0.0/24"]}]}`))
	f.Add(409, []byte(`{"error":"network science: there is one"}`))
	f.Add(404, []byte("404 page not found"))
	f.Add(200, []byte(`<html>`))
	f.Add(304, []byte{})
	f.Add(503, []byte(`{"error":3}`))
	c, err := New(Config{URL: "http://controller"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		fuzzlimit.Time(t)
		if status < 200 || status > 599 {
			return // the transport does not return other statuses
		}
		c.targets[0].http.Transport = transport(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Body: io.NopCloser(bytes.NewReader(body))}, nil
		})
		var p vdn.Plan
		got, err := c.ask(t.Context(), http.MethodGet, "/v1/nodes/a/plan", 0, nil, &p)
		if err == nil {
			if got != status || status >= 400 || status != http.StatusNotModified && !json.Valid(body) {
				t.Errorf("%d %q passes as %d", status, body, got)
			}
			return
		}
		if err.Error() == "" || len(err.Error()) > mostWords+1000 || status >= 400 != IsStatus(err, status) {
			t.Errorf("%d %.100q: an error of %d bytes: %.300v", status, body, len(err.Error()), err)
		}
	})
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
