package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp"
	"github.com/fairlead/fairlead/internal/limit"
)

// mostAsked is the largest request body that an agent reads, in bytes.
const mostAsked = 1 << 20

// What an agent answers besides its status.
const (
	tracePath   = "/v1/trace"
	dropsPath   = "/v1/drops"
	flowsPath   = "/v1/flows"
	capturePath = "/v1/capture"
)

// endpoints answer what needs the data plane or the server half.
func (a *agent) endpoints() []status.Endpoint {
	all := []status.Endpoint{status.ReadyEndpoint(a.ready), {Pattern: "GET " + flowsPath, Handler: answer(a.answerFlows)},
		{Pattern: "POST " + drainPath, Handler: answer(a.answerDrain)}}
	if a.xdp == nil {
		return all
	}
	return append(all,
		status.Endpoint{Pattern: "POST " + tracePath, Handler: answer(a.answerTrace)},
		status.Endpoint{Pattern: "GET " + dropsPath, Handler: answer(a.answerDrops)},
		status.Endpoint{Pattern: "GET " + eventsPath, Handler: answer(a.answerEvents)},
		status.Endpoint{Pattern: "GET " + capturePath, Handler: answer(a.answerCapture)},
	)
}

// answer is a handler that may fail: before it has written anything, with the
// error's words.
type answer func(*stream, *http.Request) error

func (f answer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := &stream{w: w}
	err := f(s, r)
	switch {
	case err == nil:
	case !s.begun:
		http.Error(w, err.Error(), http.StatusBadRequest)
	default:
		slog.Debug("answer ended", "path", r.URL.Path, "error", err)
		panic(http.ErrAbortHandler) // the asker shall see that it is not whole
	}
}

// stream is an answer that is written bit by bit.
type stream struct {
	w     http.ResponseWriter
	begun bool
}

func (s *stream) Write(b []byte) (int, error) {
	s.begun = true
	return s.w.Write(b)
}

// Flush sends what is written; the asker sees the answer begin.
func (s *stream) Flush() {
	s.begun = true
	if f, ok := s.w.(http.Flusher); ok {
		f.Flush()
	}
}

func (a *agent) answerTrace(s *stream, r *http.Request) error {
	var ask xdp.TraceRequest
	if err := json.NewDecoder(limit.NewReader(r.Body, "request", mostAsked)).Decode(&ask); err != nil {
		return fmt.Errorf("what is to be traced: %w", err)
	}
	t, err := a.xdp.TracePacket(r.Context(), ask, a.serviceOf)
	if err != nil {
		return err
	}
	return json.NewEncoder(s).Encode(t)
}

// serviceOf names the Service of a frontend, where the plan has it.
func (a *agent) serviceOf(k service.Key) string {
	for _, f := range a.loop.View().Plan.Frontends {
		if f.Key == k {
			return f.Service.ID.String()
		}
	}
	return ""
}

// asker is a looking command that asks for one of these.
type asker struct{ look }

// ask gives the body of an answer.
func (a *asker) ask(ctx context.Context, method, path string, query url.Values, body io.Reader) (io.ReadCloser, error) {
	socket, err := a.where(ctx)
	if err != nil {
		return nil, err
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return status.Ask(ctx, socket, method, path, body)
}

// askJSON reads an answer that is one JSON value.
func (a *asker) askJSON(ctx context.Context, method, path string, body io.Reader, into any) error {
	got, err := a.ask(ctx, method, path, nil, body)
	if err != nil {
		return err
	}
	defer got.Close()
	if err := json.NewDecoder(limit.NewReader(got, path, limit.Item)).Decode(into); err != nil {
		return fmt.Errorf("the agent's answer broke off: %w", err)
	}
	return nil
}

// each reads a stream of JSON values until it ends or ctx does. A value has no more
// than limit.Item bytes.
func each[T any](ctx context.Context, body io.Reader, f func(T) error) error {
	bounded := limit.NewReader(body, "one value", limit.Item)
	for dec := json.NewDecoder(bounded); ; {
		bounded.Renew()
		var v T
		switch err := dec.Decode(&v); {
		case ctx.Err() != nil || errors.Is(err, io.EOF):
			return nil // also where more came together with the last that was wanted
		case err != nil:
			return fmt.Errorf("the agent's answer broke off: %w", err)
		}
		if err := f(v); err != nil {
			return err
		}
	}
}
