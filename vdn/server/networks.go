package server

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"

	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/store"
)

func (s *Server) getNetworks(r *http.Request) (answer, error) {
	if err := only(r); err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusOK, body: filter(s.store.Networks(), func(n vdn.Network) bool { return who(r).Sees(n.Name) })}, nil
}

func (s *Server) getNetwork(r *http.Request) (answer, error) {
	n, err := s.store.Network(r.PathValue("name"))
	return answer{status: http.StatusOK, body: n, etag: etag(n)}, err
}

// ours rejects changes of networks that are managed elsewhere.
func (s *Server) ours(r *http.Request) error {
	if s.elsewhere == "" {
		return nil
	}
	return &vdn.Problem{Kind: vdn.Conflict, Object: "network " + r.PathValue("name"), Text: "networks here are " + s.elsewhere}
}

func (s *Server) putNetwork(r *http.Request) (answer, error) {
	if err := s.ours(r); err != nil {
		return answer{}, err
	}
	var n vdn.Network
	if err := body(r, &n); err != nil {
		return answer{}, err
	}
	if err := named("network", &n.Name, r.PathValue("name")); err != nil {
		return answer{}, err
	}
	created, err := s.store.PutNetwork(r.Context(), n, allow(r))
	return answer{status: createdOr(created), body: n, etag: etag(n)}, err
}

func createdOr(created bool) int {
	if created {
		return http.StatusCreated
	}
	return http.StatusOK
}

func (s *Server) deleteNetwork(r *http.Request) (answer, error) {
	if err := s.ours(r); err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusNoContent}, s.store.DeleteNetwork(r.Context(), r.PathValue("name"), allow(r))
}

// etag changes whenever the network changes.
func etag(n vdn.Network) string {
	b, err := json.Marshal(n)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return `"` + hex.EncodeToString(sum[:8]) + `"`
}

// allow makes a change conditional on the version that the client read (RFC 9110, section
// 13.1).
func allow(r *http.Request) store.Allow {
	match, none := r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
	return func(before *vdn.Network) error {
		changed := func(object, field, text string) error {
			return &vdn.Problem{Kind: vdn.Changed, Object: object, Field: field, Text: text}
		}
		switch {
		case none == "*" && before != nil:
			return changed(before.Object(), "If-None-Match", "already exists: use another name, or change it without that header")
		case match != "" && before == nil:
			return changed("network", "If-Match", "no longer exists: create it again without that header")
		case match != "" && match != "*" && match != etag(*before):
			return changed(before.Object(), "If-Match", "has changed since it was read: read it again")
		}
		return nil
	}
}
