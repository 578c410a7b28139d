package webhook

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/cloud"
	"github.com/fairlead/fairlead/core/route"
)

func offer(node, hop string, prefixes ...string) cloud.Offer {
	o := cloud.Offer{Node: node}
	for _, p := range prefixes {
		o.Routes = append(o.Routes, route.Route{Prefix: netip.MustParsePrefix(p), NextHop: netip.MustParseAddr(hop)})
	}
	return o
}

// The complete state is posted and signed, with the same content in any order of offers,
// even if it is empty; and the response may reject prefixes.
func TestState(t *testing.T) {
	var keys, bodies []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s, %v", r.Method, r.Header)
		}
		if got, want := r.Header.Get("Fairlead-Signature"), Sign("open sesame", r.Header.Get("Fairlead-Time"), body); got != want {
			t.Errorf("signature %s, want %s", got, want)
		}
		keys, bodies = append(keys, r.Header.Get("Idempotency-Key")), append(bodies, string(body))
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"rejected": {"10.1.2.0/24": "the firewall has it"}}`)
	}))
	defer s.Close()
	p, err := New(Config{URL: s.URL + "/routes", Secret: "open sesame", Owner: "lab"})
	if err != nil {
		t.Fatal(err)
	}
	a, b := offer("a", "10.0.0.1", "10.1.2.0/24", "10.1.1.0/24"), offer("b", "10.0.0.2", "10.1.1.0/24")
	for _, of := range [][]cloud.Offer{{a, b}, {b, a}, nil} {
		refused, err := p.Sync(context.Background(), of)
		// A rejected prefix that nobody offers is not withdrawn.
		undone, rest := advertise.RouteErrors(err)
		if left := undone[netip.MustParsePrefix("10.1.2.0/24")]; len(rest) > 0 || (left != nil) != (of == nil) {
			t.Errorf("of %v is undone %v, %v", of, undone, rest)
		}
		if refused.Words() != "10.1.2.0/24: the firewall has it" {
			t.Errorf("%q", refused.Words())
		}
	}
	want := `{"owner":"lab","routes":[` +
		`{"prefix":"10.1.1.0/24","nextHops":[{"node":"a","address":"10.0.0.1"},{"node":"b","address":"10.0.0.2"}]},` +
		`{"prefix":"10.1.2.0/24","nextHops":[{"node":"a","address":"10.0.0.1"}]}]}`
	if d := cmp.Diff([]string{want, want, `{"owner":"lab","routes":[]}`}, bodies); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if keys[0] != keys[1] || keys[0] == keys[2] {
		t.Errorf("keys %q", keys)
	}
}

// TestSignature compares the algorithm in docs/clouds.md with a value computed by
// openssl: printf '1700000000.{}' | openssl dgst -sha256 -hmac secret
func TestSignature(t *testing.T) {
	if got := Sign("secret", "1700000000", []byte("{}")); got != "sha256=b8569b78799ff9e3cbff0fc2d63a33a2b57f3282abd07c37ae5e8e7d79a5f163" {
		t.Error(got)
	}
}

func TestRefusals(t *testing.T) {
	for want, answer := range map[string]http.HandlerFunc{
		"is the secret the same on both sides": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) },
		"answered 500 Internal Server Error: broken": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "broken", http.StatusInternalServerError)
		},
		"answered 302 Found": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
		"the answer cannot be read": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"rejected": 7}`)
		},
		"answered 429 Too Many Requests: nothing": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "9")
			w.WriteHeader(http.StatusTooManyRequests)
		},
	} {
		s := httptest.NewServer(answer)
		p, err := New(Config{URL: s.URL, Owner: "lab"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.Sync(context.Background(), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if busy, ok := err.(*cloud.Busy); strings.Contains(want, "429") && (!ok || busy.After != 9*time.Second) {
			t.Errorf("want a Busy error with the time to wait, got %v", err)
		}
		s.Close()
	}
	for _, u := range []string{"", "ftp://10.0.0.1/", "10.0.0.1:80"} {
		if _, err := New(Config{URL: u, Owner: "lab"}); err == nil {
			t.Errorf("%q is taken", u)
		}
	}
}

// TestPage checks that the example on the page is a state as it is posted.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/clouds.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "## Webhook")
	_, text, _ = strings.Cut(text, "```json\n")
	text, _, _ = strings.Cut(text, "```")
	var s State
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); err != nil || len(s.Routes) != 1 || len(s.Routes[0].NextHops) != 2 || s.Owner == "" {
		t.Errorf("%+v, %v", s, err)
	}
}

// A response that is too long is a separate error, not truncated JSON.
func TestAnswerIsBounded(t *testing.T) {
	status := http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"rejected":{}}`+strings.Repeat(" ", most))
	}))
	defer s.Close()
	p, err := New(Config{URL: s.URL, Owner: "lab"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Sync(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "longer than 1048576 bytes") {
		t.Errorf("%v, want the limit", err)
	}
	status = http.StatusTeapot
	if _, err := p.Sync(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "418") {
		t.Errorf("%v, want the status", err)
	}
}
