package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/access"
	"github.com/fairlead/fairlead/vdn/audit"
)

// identityKey is the context key of a request's identity.
type identityKey struct{}

// who returns the client's identity.
func who(r *http.Request) access.Identity {
	i, _ := r.Context().Value(identityKey{}).(access.Identity) // set by guard
	return i
}

// guard authenticates requests by their token.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i, known := access.Anyone, true
		if s.tokens != nil && (r.URL.Path == "/v1" || strings.HasPrefix(r.URL.Path, "/v1/")) {
			i, known = s.identify(r)
		}
		if !known {
			w.Header().Set("WWW-Authenticate", "Bearer")
			err := failure{http.StatusUnauthorized, "request, Authorization: unknown or missing token: send \"Bearer TOKEN\""}
			s.record(r, 0, err)
			s.refuse(w, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), identityKey{}, i)))
	})
}

// identify returns the identity of a request's token.
func (s *Server) identify(r *http.Request) (access.Identity, bool) {
	const scheme = "Bearer "
	token, bears := strings.CutPrefix(r.Header.Get("Authorization"), scheme)
	if !bears || token == "" {
		return access.Identity{}, false
	}
	return s.tokens.Find(token)
}

// may returns an error unless the client may perform an action.
func may(r *http.Request, a access.Action) error { return who(r).May(a) }

// mayTouch returns a check of whether the client may change an attachment.
func mayTouch(r *http.Request) func(vdn.Attachment) error {
	return func(a vdn.Attachment) error {
		return may(r, access.Action{Verb: access.Change, Kind: access.Attachment, Network: a.Network, Node: a.Node})
	}
}

// record logs changes and denied requests. It omits the frequent node reports unless they
// fail.
func (s *Server) record(r *http.Request, status int, err error) {
	if err != nil {
		status = statusOf(err)
	}
	refused := status == http.StatusUnauthorized || status == http.StatusForbidden
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	if s.audit == nil || reads && !refused || isReport(r) && err == nil {
		return
	}
	i := who(r)
	from, _, splitErr := net.SplitHostPort(r.RemoteAddr)
	if splitErr != nil {
		from = "" // a Unix socket
	}
	record := audit.Record{
		Time: s.now().UTC().Truncate(time.Millisecond), Controller: s.name, Who: i.Name, Role: string(i.Role), From: from,
		Method: r.Method, Path: r.URL.Path, Object: objectOf(r, err), Result: "ok", Status: status,
	}
	switch {
	case refused:
		record.Result = "denied"
	case err != nil:
		record.Result = "failed"
	}
	if err != nil {
		record.Error = err.Error()
	}
	s.audit.Write(record)
}

// isReport reports whether a request is a node's report.
func isReport(r *http.Request) bool {
	return r.Method == http.MethodPut && strings.HasPrefix(r.URL.Path, "/v1/nodes/") && strings.Count(r.URL.Path, "/") == 3
}

// objectOf names the object of a request from its error, handler or path.
func objectOf(r *http.Request, err error) string {
	var p *vdn.Problem
	if errors.As(err, &p) {
		return p.Object
	}
	if o, ok := r.Context().Value(objectKey{}).(*string); ok && *o != "" {
		return *o
	}
	kind, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/"), "/")
	name, _, _ := strings.Cut(rest, "/")
	return strings.TrimSpace(strings.TrimSuffix(kind, "s") + " " + name)
}

// objectKey is the context key of the object that a handler found.
type objectKey struct{}

// about records the object of a request.
func about(r *http.Request, object string) {
	if o, ok := r.Context().Value(objectKey{}).(*string); ok {
		*o = object
	}
}
