package server_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/server"
	"github.com/fairlead/fairlead/vdn/store"
)

// methods are those of the API, and one that it does not have.
var methods = []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete, http.MethodPatch}

// FuzzRequests sends arbitrary requests to a controller. No response is an internal error,
// every rejection is JSON with a message, and what is accepted reads back as written.
func FuzzRequests(f *testing.F) {
	for _, seed := range []struct {
		method     uint8
		path, body string
	}{
		{0, "/v1/networks", ""}, {0, "/v1/networks?after=1&wait=1ms", ""}, {0, "/v1/view", ""}, {0, "/v1/nodes/n1/plan?after=0", ""}, {0, "/v1/openapi.json", ""},
		{1, "/v1/networks/art", `{"devices":["eth1"],"subnets":[{"cidr":"10.9.0.0/24","gateway":"10.9.0.1"}],"maxRate":"400M","share":[{"domain":"busan"}]}`},
		{1, "/v1/networks/art", `{"name":"b"}`}, {1, "/v1/networks/%2e%2e", `[[[[`}, {1, "/v1/nodes/n1", `{"devices":["eth1"]}`},
		{1, "/v1/peers/busan", `{"url":"https://busan:7474"}`}, {1, "/v1/attachments/c1.net1/up", `{"netns":"/run/netns/c1","mac":"02:00:00:00:00:01"}`},
		{2, "/v1/attachments", `{"network":"science","node":"n1","container":"c1","interface":"net1","addresses":["10.5.0.7"]}`},
		{2, "/v1/nodes/n1/gc", `{"attachments":["c1.net1"]}`}, {2, "/v1/attachments", `null`}, {3, "/v1/networks/art", ""}, {3, "/v1/peers/x", ""}, {4, "/healthz", ""},
	} {
		f.Add(seed.method, seed.path, []byte(seed.body))
	}
	kept, err := store.Open(f.TempDir(), "here")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = kept.Close() })
	s := server.New(server.Options{Store: kept, Log: slog.New(slog.DiscardHandler)})
	if code, said := send(f, s, http.MethodPut, "/v1/networks/science", `{"devices":["eth1"],"subnets":[{"cidr":"10.5.0.0/24"}]}`); code >= 300 {
		f.Fatal(said)
	}
	f.Fuzz(func(t *testing.T, method uint8, path string, body []byte) {
		fuzzlimit.Time(t)
		u, err := url.ParseRequestURI(path)
		if err != nil || !strings.HasPrefix(path, "/") {
			return
		}
		how := methods[int(method)%len(methods)]
		if u.Path == "/v1/networks/science" && how != http.MethodGet {
			return // every input must find it unchanged
		}
		code, said := send(t, s, how, path, string(body))
		if code >= 500 {
			t.Fatalf("%s %s: %d %s", how, path, code, said)
		}
		var no server.Failure
		if code >= 400 && (json.Unmarshal([]byte(said), &no) != nil || no.Error == "" || !utf8.ValidString(no.Error)) {
			t.Errorf("%s %s: %d %q is no refusal in words", how, path, code, said)
		}
		if code < 300 && how != http.MethodGet {
			takeBack(t, s, how, u, said)
		}
	})
}

// send returns the response to one request that does not wait for changes.
func send(t testing.TB, s http.Handler, method, path, body string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	r := httptest.NewRequest(method, "/", strings.NewReader(body)).WithContext(ctx)
	r.URL, r.RequestURI = must(url.ParseRequestURI(path)), path
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	said, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(said)
}

func must(u *url.URL, _ error) *url.URL { return u }

// takeBack repeats a request, which must have the same result, and deletes what it created.
func takeBack(t *testing.T, s http.Handler, method string, u *url.URL, said string) {
	t.Helper()
	path := u.EscapedPath()
	switch {
	case method == http.MethodPost && path == "/v1/attachments":
		var a struct{ Attachment vdn.Attachment }
		if err := json.Unmarshal([]byte(said), &a); err != nil || a.Attachment.ID == "" || len(a.Attachment.Addresses) == 0 {
			t.Errorf("attached: %s, %v", said, err)
		}
		path += "/" + url.PathEscape(a.Attachment.ID)
	case method != http.MethodPut || strings.HasSuffix(path, "/up"):
		return
	case strings.HasPrefix(path, "/v1/networks/"):
		code, returned := send(t, s, http.MethodGet, path, "")
		var n vdn.Network
		if err := json.Unmarshal([]byte(returned), &n); code != http.StatusOK || err != nil || n.Validate() != nil {
			t.Errorf("%s is accepted, but returned as %d %s: %v, %v", path, code, returned, err, n.Validate())
		}
		again, _ := json.Marshal(n)
		if code, no := send(t, s, http.MethodPut, path, string(again)); code >= 300 {
			t.Errorf("%s is returned as %s, which is rejected: %s", path, again, no)
		}
	}
	if code, no := send(t, s, http.MethodDelete, path, ""); code >= 300 {
		t.Errorf("%s cannot be taken back: %d %s", path, code, no)
	}
}
