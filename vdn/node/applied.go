package node

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/internal/httpserver"
	"github.com/fairlead/fairlead/internal/logging"
	"github.com/fairlead/fairlead/vdn/enforce"
)

// Socket is where the daemon serves the CNI plugins on its node.
const Socket = "/run/fairlead/vdn/node.sock"

// Client returns an HTTP client of the daemon on a socket. Its URLs begin with http://node.
func Client(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
}

// mostWait limits how long a request may wait.
const mostWait = 30 * time.Second

// Serve serves requests on l until ctx ends, and then closes l.
//
//	GET /applied?attachment=ID&wait=1s
//
// 200: the attachment is enforced. 304: not within that time. 503, with an error in JSON:
// it cannot be.
//
//	GET /node
//
// {"name": "..."}: the name by which the controller knows this node.
//
//	PUT /attachments
//
// An Adoption: 204 once it is stored; /applied reports whether it is enforced.
//
//	GET /status
//
// A Status.
func (d *Daemon) Serve(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /applied", d.answer)
	mux.HandleFunc("PUT /attachments", d.answerAdopt)
	mux.HandleFunc("GET /status", d.answerStatus)
	mux.HandleFunc(logging.Path, logging.Serve)
	mux.HandleFunc("GET /node", func(w http.ResponseWriter, _ *http.Request) { respond(w, http.StatusOK, "name", d.cfg.Node.Name) })
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	return httpserver.Until(ctx, srv, l)
}

func (d *Daemon) answer(w http.ResponseWriter, r *http.Request) {
	id, wait := r.FormValue("attachment"), time.Duration(0)
	var err error
	if text := r.FormValue("wait"); text != "" {
		wait, err = time.ParseDuration(text)
	}
	if id == "" || err != nil || wait < 0 {
		respond(w, http.StatusBadRequest, "error", "applied: ask for attachment=ID and wait=1s")
		return
	}
	ctx, stop := context.WithTimeout(r.Context(), min(wait, mostWait))
	defer stop()
	switch there, err := d.await(ctx, id); {
	case there:
		w.WriteHeader(http.StatusOK)
	case err != nil:
		respond(w, http.StatusServiceUnavailable, "error", err.Error())
	default:
		w.WriteHeader(http.StatusNotModified)
	}
}

func respond(w http.ResponseWriter, status int, key, value string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{key: value}) // the client may be gone
}

// await waits until an attachment is enforced. The error is why it is not, if that is
// known.
func (d *Daemon) await(ctx context.Context, id string) (there bool, err error) {
	for {
		d.mu.Lock()
		there, err = d.enforced(id)
		changed := d.changed
		d.mu.Unlock()
		if there {
			return true, nil
		}
		select {
		case <-ctx.Done():
			return false, err
		case <-changed:
		}
	}
}

func (d *Daemon) enforced(id string) (bool, error) {
	for _, a := range d.applied.Local {
		if a.ID == id && a.NetNS != "" {
			err := enforce.Failed(d.err)[id]
			return err == nil, err
		}
	}
	return false, nil
}
