package webhook

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
)

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// FuzzAnswer has a webhook return arbitrary answers: each is decoded, or rejected with a
// short error.
func FuzzAnswer(f *testing.F) {
	f.Add(200, "application/json", "", []byte(`{"rejected":{"10.1.2.0/24":"the firewall has it"}}`))
	f.Add(200, "application/json", "", []byte(`{"rejected":{"x":"y"}}`))
	f.Add(204, "", "", []byte{})
	f.Add(429, "text/plain", "30", []byte("too many"))
	f.Add(401, "", "-1", []byte("\x00\xff"))
	p, err := New(Config{URL: "http://cloud", Owner: "lab"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, status int, kind, retry string, body []byte) {
		fuzzlimit.Time(t)
		p.client.Transport = transport(func(r *http.Request) (*http.Response, error) {
			h := http.Header{"Content-Type": {kind}, "Retry-After": {retry}}
			return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: h, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, nil
		})
		refused, err := p.Sync(t.Context(), nil)
		if err != nil && (err.Error() == "" || len(err.Error()) > 1000) {
			t.Errorf("an error of %d bytes: %.300v", len(err.Error()), err)
		}
		if err == nil && (status < 200 || status > 299 || len(refused.Words()) > 5000) {
			t.Errorf("%d %.100q passes: %.300s", status, body, refused.Words())
		}
	})
}
