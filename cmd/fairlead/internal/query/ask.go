package query

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"

	"github.com/fairlead/fairlead/agent/socket"
	"github.com/fairlead/fairlead/internal/limit"
)

// Do sends a request and returns the body of the response.
func (q *Query) Do(ctx context.Context, method, path string, params url.Values, body io.Reader) (io.ReadCloser, error) {
	at, err := q.SocketPath(ctx)
	if err != nil {
		return nil, err
	}
	if len(params) > 0 {
		path += "?" + params.Encode()
	}
	return socket.Ask(ctx, at, method, path, body)
}

// DoJSON sends a request and decodes the response, one JSON value.
func (q *Query) DoJSON(ctx context.Context, method, path string, params url.Values, body io.Reader, into any) error {
	got, err := q.Do(ctx, method, path, params, body)
	if err != nil {
		return err
	}
	defer got.Close()
	if err := json.NewDecoder(limit.NewReader(got, path, limit.Item)).Decode(into); err != nil {
		return fmt.Errorf("the agent's response is incomplete: %w", err)
	}
	return nil
}

// Each calls f for each JSON value of a stream, until the stream or ctx ends. A value
// has at most limit.Item bytes.
func Each[T any](ctx context.Context, body io.Reader, f func(T) error) error {
	bounded := limit.NewReader(body, "one value", limit.Item)
	for dec := json.NewDecoder(bounded); ; {
		bounded.Renew()
		var v T
		switch err := dec.Decode(&v); {
		case ctx.Err() != nil || errors.Is(err, io.EOF):
			return nil // even if more values arrived with the last one
		case err != nil:
			return fmt.Errorf("the agent's response is incomplete: %w", err)
		}
		if err := f(v); err != nil {
			return err
		}
	}
}
