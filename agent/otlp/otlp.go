// Package otlp sends traces to an OpenTelemetry collector, as JSON over HTTP (OTLP 1,
// https://opentelemetry.io/docs/specs/otlp/#otlphttp). What is traced does not belong here.
// The OpenTelemetry SDK would do the same with 0.9 MB more and a dozen modules.
package otlp

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"
)

// Span is what happened in some time, with what happened during it.
type Span struct {
	Name         string
	Began, Ended time.Time
	Attributes   []Attribute
	Err          error
	Children     []Span
}

// Attribute is a property of a Span or a Resource. Value is a string or an int.
type Attribute struct {
	Key   string
	Value any
}

const (
	path       = "/v1/traces"
	maxWaiting = 256 // traces
	maxBatch   = 64
	timeout    = 10 * time.Second
)

// Exporter sends traces. Its methods may be called by several goroutines.
type Exporter struct {
	url      string
	address  string // of the collector
	resource []Attribute
	log      *slog.Logger
	client   http.Client
	waiting  chan Span
	lost     atomic.Uint64
	failed   string // last logged
}

// New returns an exporter to a collector, such as http://collector:4318. The resource
// describes this process.
func New(endpoint string, resource []Attribute, log *slog.Logger) (*Exporter, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return nil, fmt.Errorf("%q is not the URL of a collector, such as http://collector:4318", endpoint)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = path
	}
	return &Exporter{url: u.String(), address: u.Host, resource: resource, log: log, client: http.Client{Timeout: timeout}, waiting: make(chan Span, maxWaiting)}, nil
}

// Add queues a trace, which a span and its children are. If the collector does not keep up,
// the trace is dropped.
func (e *Exporter) Add(s Span) {
	select {
	case e.waiting <- s:
	default:
		e.lost.Add(1)
	}
}

// Run sends what is added until ctx ends, and then what is queued.
func (e *Exporter) Run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case s := <-e.waiting:
			e.send(ctx, e.batch(s))
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if rest := e.batch(); len(rest) > 0 {
		e.send(last, rest)
	}
}

// batch adds what is queued.
func (e *Exporter) batch(all ...Span) []Span {
	for len(all) < maxBatch {
		select {
		case s := <-e.waiting:
			all = append(all, s)
		default:
			return all
		}
	}
	return all
}

// send sends traces once. A failure is logged if it differs from the one before.
func (e *Exporter) send(ctx context.Context, all []Span) {
	err := e.post(ctx, all)
	if err == nil {
		if lost := e.lost.Swap(0); lost > 0 {
			e.log.Warn("traces were dropped: the collector did not keep up", "traces", lost)
		}
		e.failed = ""
		return
	}
	if text := err.Error(); text != e.failed {
		e.failed = text
		e.log.Warn("failed to send traces, which are dropped until the collector answers", "address", e.address, "error", err)
	}
}

func (e *Exporter) post(ctx context.Context, all []Span) error {
	body, err := json.Marshal(e.request(all))
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := e.client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			return u.Err // without the URL, which the log has
		}
		return err
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s: %q", resp.Status, text)
	}
	return nil
}

// The messages of opentelemetry/proto/collector/trace/v1, with the fields that are used.
type (
	request struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource   resource     `json:"resource"`
		ScopeSpans []scopeSpans `json:"scopeSpans"`
	}
	resource struct {
		Attributes []keyValue `json:"attributes"`
	}
	scopeSpans struct {
		Scope scope  `json:"scope"`
		Spans []span `json:"spans"`
	}
	scope struct {
		Name string `json:"name"`
	}
	span struct {
		TraceID    string     `json:"traceId"`
		SpanID     string     `json:"spanId"`
		ParentID   string     `json:"parentSpanId,omitempty"`
		Name       string     `json:"name"`
		Kind       int        `json:"kind"`
		Began      string     `json:"startTimeUnixNano"`
		Ended      string     `json:"endTimeUnixNano"`
		Attributes []keyValue `json:"attributes,omitempty"`
		Status     *status    `json:"status,omitempty"`
	}
	status struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	keyValue struct {
		Key   string `json:"key"`
		Value value  `json:"value"`
	}
	value struct {
		String *string `json:"stringValue,omitempty"`
		Int    *string `json:"intValue,omitempty"`
	}
)

const (
	kindInternal = 1 // SPAN_KIND_INTERNAL
	codeError    = 2 // STATUS_CODE_ERROR
)

func (e *Exporter) request(all []Span) request {
	var spans []span
	for _, s := range all {
		spans = appendSpan(spans, s, random(16), "")
	}
	return request{[]resourceSpans{{
		Resource: resource{keyValues(e.resource)}, ScopeSpans: []scopeSpans{{Scope: scope{"fairlead"}, Spans: spans}},
	}}}
}

// appendSpan appends a span and its children.
func appendSpan(spans []span, s Span, trace, parent string) []span {
	id := random(8)
	one := span{
		TraceID: trace, SpanID: id, ParentID: parent, Name: s.Name, Kind: kindInternal,
		Began: nanoseconds(s.Began), Ended: nanoseconds(s.Ended), Attributes: keyValues(s.Attributes),
	}
	if s.Err != nil {
		one.Status = &status{codeError, s.Err.Error()}
	}
	spans = append(spans, one)
	for _, child := range s.Children {
		spans = appendSpan(spans, child, trace, id)
	}
	return spans
}

func nanoseconds(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

func random(n int) string {
	id := make([]byte, n)
	_, _ = rand.Read(id) // never fails
	return hex.EncodeToString(id)
}

func keyValues(all []Attribute) (kv []keyValue) {
	for _, a := range all {
		v := value{}
		switch x := a.Value.(type) {
		case int:
			v.Int = new(strconv.Itoa(x))
		default:
			v.String = new(fmt.Sprint(x))
		}
		kv = append(kv, keyValue{a.Key, v})
	}
	return kv
}
