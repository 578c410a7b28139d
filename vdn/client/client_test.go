package client

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/limit"
)

// answering is a client of a controller that answers anything.
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
	if !errors.As(err, &long) || !strings.Contains(err.Error(), "controller "+c.where) {
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
