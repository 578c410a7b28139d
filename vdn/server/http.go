package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/httpserver"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/access"
)

// maxBody limits the size of a request body, in bytes.
const maxBody = 1 << 20

// maxWait limits how long a request may wait for changes.
const maxWait = 5 * time.Minute

// route is one operation of the API.
type route struct {
	method, path string
	do           func(*http.Request) (answer, error)
}

// answer is a response.
type answer struct {
	status int
	body   any // encoded as JSON; nil for none
	etag   string
}

// failure is an error with its HTTP status.
type failure struct {
	status int
	text   string
}

func (f failure) Error() string { return f.text }

func (s *Server) api() []route {
	return []route{
		{"GET", "/v1/networks", s.current(needs(access.Read, access.Network, s.getNetworks))},
		{"GET", "/v1/networks/{name}", s.current(needs(access.Read, access.Network, s.getNetwork))},
		{"PUT", "/v1/networks/{name}", needs(access.Change, access.Network, s.putNetwork)},
		{"DELETE", "/v1/networks/{name}", needs(access.Change, access.Network, s.deleteNetwork)},
		{"POST", "/v1/attachments", s.postAttachment},
		{"GET", "/v1/attachments", s.current(s.getAttachments)},
		{"GET", "/v1/attachments/{id}", s.current(s.getAttachment)},
		{"DELETE", "/v1/attachments/{id}", s.deleteAttachment},
		{"PUT", "/v1/attachments/{id}/up", s.putUp},
		{"PUT", "/v1/nodes/{node}", needs(access.Change, access.OfNode, s.putNode)},
		{"DELETE", "/v1/nodes/{node}", needs(access.Change, access.Nodes, s.deleteNode)},
		{"POST", "/v1/nodes/{node}/gc", needs(access.Change, access.OfNode, s.postGC)},
		{"GET", "/v1/nodes/{node}/plan", needs(access.Read, access.OfNode, s.getPlan)},
		{"GET", "/v1/view", needs(access.Read, access.View, s.getView)},
		{"GET", "/v1/peers", s.current(needs(access.Read, access.Peer, s.getPeers))},
		{"PUT", "/v1/peers/{domain}", needs(access.Change, access.Peer, s.putPeer)},
		{"DELETE", "/v1/peers/{domain}", needs(access.Change, access.Peer, s.deletePeer)},
		{"GET", "/v1/openapi.json", getOpenAPI},
		{"GET", "/healthz", s.getHealth},
	}
}

// needs authorizes a route for the objects that its path names.
func needs(verb access.Verb, kind access.Kind, do func(*http.Request) (answer, error)) func(*http.Request) (answer, error) {
	return func(r *http.Request) (answer, error) {
		if err := may(r, access.Action{Verb: verb, Kind: kind, Network: r.PathValue("name"), Node: r.PathValue("node")}); err != nil {
			return answer{}, err
		}
		return do(r)
	}
}

// current makes a read reflect all earlier changes, through any controller.
func (s *Server) current(do func(*http.Request) (answer, error)) func(*http.Request) (answer, error) {
	return func(r *http.Request) (answer, error) {
		if err := s.store.Sync(r.Context()); err != nil {
			return answer{}, err
		}
		return do(r)
	}
}

// routes builds the handler of all routes.
func (s *Server) routes(page http.Handler) http.Handler {
	mux := http.NewServeMux()
	methods := map[string][]string{}
	for _, r := range s.api() {
		mux.Handle(r.method+" "+r.path, s.handle(r.do))
		methods[r.path] = append(methods[r.path], r.method)
	}
	for path, can := range methods {
		mux.Handle(path, s.handle(func(r *http.Request) (answer, error) {
			return answer{}, failure{http.StatusMethodNotAllowed, fmt.Sprintf("%s, method: %s is not allowed: use %s", r.URL.Path, r.Method, strings.Join(can, ", "))}
		}))
	}
	mux.Handle("GET /metrics", s.metrics)
	probes := httpserver.Probes(nil, s.store.Err)
	mux.Handle("GET /livez", probes)
	mux.Handle("GET /readyz", probes)
	mux.Handle("/v1/", s.handle(notThere))
	if page != nil {
		mux.Handle("/", page)
	} else {
		mux.Handle("/", s.handle(notThere))
	}
	// A page of another site in an operator's browser must not change anything.
	cross := http.NewCrossOriginProtection()
	cross.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.refuse(w, failure{http.StatusForbidden, "request, Origin: request from another site: use the page of the controller"})
	}))
	return cross.Handler(s.guard(mux))
}

func notThere(r *http.Request) (answer, error) {
	return answer{}, failure{http.StatusNotFound, r.URL.Path + ": not found: GET /v1/openapi.json lists all paths"}
}

// handle converts a route to an http.Handler.
func (s *Server) handle(do func(*http.Request) (answer, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.WithContext(context.WithValue(r.Context(), objectKey{}, new(string)))
		a, err := do(r)
		s.record(r, a.status, err)
		if err != nil {
			s.refuse(w, err)
			return
		}
		if a.etag != "" {
			w.Header().Set("ETag", a.etag)
		}
		write(w, a.status, a.body)
	})
}

func write(w http.ResponseWriter, status int, body any) {
	if body == nil {
		w.WriteHeader(status)
		return
	}
	b, err := json.Marshal(body)
	if err != nil { // cannot happen for the model's types
		status, b = http.StatusInternalServerError, []byte(`{"error":"answer: cannot be encoded as JSON: this is a bug"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // the client may be gone
}

// kinds maps the model's problems to HTTP statuses.
var kinds = map[vdn.Kind]int{
	vdn.Invalid: http.StatusBadRequest, vdn.Conflict: http.StatusConflict,
	vdn.NotFound: http.StatusNotFound, vdn.Changed: http.StatusPreconditionFailed,
}

// statusOf returns the HTTP status of an error.
func statusOf(err error) int {
	var f failure
	var denied *access.Denied
	kind, isProblem := vdn.KindOf(err)
	switch {
	case errors.As(err, &denied):
		return http.StatusForbidden
	case isProblem:
		return kinds[kind]
	case errors.As(err, &f):
		return f.status
	}
	return http.StatusServiceUnavailable
}

// refuse writes an error response.
func (s *Server) refuse(w http.ResponseWriter, err error) {
	status := statusOf(err)
	if status == http.StatusServiceUnavailable {
		s.log.Error("a request failed", "error", err)
	}
	write(w, status, Failure{Error: err.Error()})
}

// Failure is the body of every error response.
type Failure struct {
	// Error names the object, the field and the fix.
	Error string `json:"error"`
}

func invalid(format string, args ...any) error {
	return failure{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// body decodes a request's JSON strictly.
func body(r *http.Request, into any) error {
	text, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return failure{http.StatusRequestEntityTooLarge, fmt.Sprintf("body: longer than %d bytes: send less", maxBody)}
	} else if err != nil {
		return invalid("body: truncated: %v: send it again", err)
	}
	if err := vdn.Decode(text, into); err != nil {
		return invalid("body: %v", err)
	}
	return nil
}

// named checks that the name in a body matches the path, and fills it in if it is empty.
func named(object string, in *string, path string) error {
	if *in == "" {
		*in = path
	}
	if *in != path {
		return invalid("%s %s, name: does not match %s in the path: use the same name", object, *in, path)
	}
	return nil
}

// news waits as the query requests, and reports whether there is a change. current returns
// the revision of the content and the store revision to wait on. sync ensures that a client
// without a revision, or with one from another controller, gets no stale content.
func (s *Server) news(r *http.Request, sync func(context.Context) error, current func() (revision, wait uint64, err error)) (bool, error) {
	if err := only(r, "after", "wait"); err != nil {
		return false, err
	}
	q := r.URL.Query()
	if q.Get("wait") != "" && q.Get("after") == "" {
		return false, invalid("query, after: is required: use the last known revision")
	}
	if q.Get("after") == "" {
		return true, sync(r.Context())
	}
	after, err := strconv.ParseUint(q.Get("after"), 10, 64)
	if err != nil {
		return false, invalid("query, after: %q is not a revision: use a number", q.Get("after"))
	}
	var wait time.Duration
	if text := q.Get("wait"); text != "" {
		if wait, err = time.ParseDuration(text); err != nil || wait < 0 || wait > maxWait {
			return false, invalid("query, wait: %q is not a duration: use one such as 30s, at most %s", text, maxWait)
		}
	}
	if after == 0 || after > s.store.Revision() {
		if err := sync(r.Context()); err != nil {
			return false, err
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	for {
		revision, upon, err := current()
		if err != nil || revision != after {
			return true, err
		}
		if s.store.Wait(ctx, upon) == upon {
			return false, nil
		}
	}
}

// only rejects unknown parameters, so that a misspelled filter does not silently select
// everything.
func only(r *http.Request, known ...string) error {
	for name, values := range r.URL.Query() {
		if !slices.Contains(known, name) {
			return invalid("query, %s: unknown parameter: use %s", name, strings.Join(known, ", "))
		}
		if len(values) > 1 {
			return invalid("query, %s: set %d times: set it once", name, len(values))
		}
	}
	return nil
}
