package federation

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/httpserver"
	"github.com/fairlead/fairlead/vdn"
)

// longestWait limits how long a request may wait.
const longestWait = time.Minute

// Serve serves peers on l until ctx ends.
func (f *Federation) Serve(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/offer", f.offer)
	s := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       2 * longestWait,
		WriteTimeout:      2 * longestWait,
		MaxHeaderBytes:    1 << 14,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	return httpserver.Until(ctx, s, tls.NewListener(l, f.ring.asServer()))
}

// offer responds with what is shared with the client: immediately, or if ?wait is given and
// If-None-Match has the current tag, as soon as the offer changes.
func (f *Federation) offer(w http.ResponseWriter, r *http.Request) {
	peer, err := f.caller(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	wait, _ := time.ParseDuration(r.FormValue("wait"))
	ctx, cancel := context.WithTimeout(r.Context(), min(wait, longestWait))
	defer cancel()
	has := r.Header.Get("If-None-Match")
	for {
		offer, revision := f.domain.Offer(peer)
		body, tag, err := encode(offer)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("ETag", tag)
		if tag != has {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(body)
			return
		}
		if ctx.Err() != nil {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		f.domain.Wait(ctx, revision)
	}
}

// caller returns the peer that the client certificate identifies.
func (f *Federation) caller(r *http.Request) (string, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return "", fmt.Errorf("client certificate required")
	}
	names := r.TLS.PeerCertificates[0].DNSNames
	for _, p := range f.domain.Peers() {
		if slices.Contains(names, p.Domain) {
			return p.Domain, nil
		}
	}
	return "", fmt.Errorf("certificate for %s: no peer with that domain is configured", strings.Join(names, ", "))
}

// encode encodes an offer, with an entity tag.
func encode(o vdn.Offer) (body []byte, tag string, err error) {
	if body, err = json.Marshal(o); err != nil {
		return nil, "", err
	}
	sum := sha256.Sum256(body)
	return body, `"` + hex.EncodeToString(sum[:12]) + `"`, nil
}
