package otlp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
)

// collector decodes requests as the OpenTelemetry Collector does, and answers with a code.
type collector struct {
	*httptest.Server
	code  int
	spans chan ptrace.ResourceSpans
}

func newCollector(t *testing.T, code int) *collector {
	c := &collector{code: code, spans: make(chan ptrace.ResourceSpans, 16)}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		in := ptraceotlp.NewExportRequest()
		if err := errors.Join(err, in.UnmarshalJSON(body)); err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: %v", r.URL.Path, r.Header.Get("Content-Type"), err)
		}
		w.WriteHeader(c.code)
		_, _ = io.WriteString(w, "no room")
		for _, rs := range in.Traces().ResourceSpans().All() {
			c.spans <- rs
		}
	}))
	t.Cleanup(c.Close)
	return c
}

func exporter(t *testing.T, endpoint string, log io.Writer) *Exporter {
	t.Helper()
	e, err := New(endpoint, []Attribute{{"service.name", "fairlead-agent"}}, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestExport sends a trace to a collector, also when the process ends.
func TestExport(t *testing.T) {
	c := newCollector(t, http.StatusOK)
	e := exporter(t, c.URL, t.Output())
	began := time.Unix(1764000000, 123456789)
	e.Add(Span{Name: "change", Began: began, Ended: began.Add(time.Second), Children: []Span{
		{Name: "program", Began: began, Ended: began.Add(time.Millisecond), Attributes: []Attribute{{"frontend", "10.1.1.1:80/TCP"}, {"routes", 3}}, Err: errors.New("no room")},
	}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e.Run(ctx)
	got := <-c.spans
	if name, _ := got.Resource().Attributes().Get("service.name"); name.Str() != "fairlead-agent" {
		t.Errorf("the resource is %v", got.Resource().Attributes().AsRaw())
	}
	spans := got.ScopeSpans().At(0).Spans()
	if spans.Len() != 2 {
		t.Fatalf("%d spans", spans.Len())
	}
	change, program := spans.At(0), spans.At(1)
	if change.Name() != "change" || change.TraceID().IsEmpty() || change.SpanID().IsEmpty() || !change.ParentSpanID().IsEmpty() ||
		change.Kind() != ptrace.SpanKindInternal || change.Status().Code() != ptrace.StatusCodeUnset ||
		!change.StartTimestamp().AsTime().Equal(began) || !change.EndTimestamp().AsTime().Equal(began.Add(time.Second)) {
		t.Errorf("change: %+v", change)
	}
	attributes := program.Attributes().AsRaw()
	if program.Name() != "program" || program.TraceID() != change.TraceID() || program.ParentSpanID() != change.SpanID() ||
		program.Status().Code() != ptrace.StatusCodeError || program.Status().Message() != "no room" ||
		attributes["frontend"] != "10.1.1.1:80/TCP" || attributes["routes"] != int64(3) {
		t.Errorf("program: %+v, %v", program, attributes)
	}
}

// TestFailuresAreLoggedOnce: traces do not wait for a collector, nor does the log repeat.
func TestFailuresAreLoggedOnce(t *testing.T) {
	c := newCollector(t, http.StatusServiceUnavailable)
	var log bytes.Buffer
	e := exporter(t, c.URL, &log)
	for range maxWaiting + 5 {
		e.Add(Span{Name: "change", Began: time.Now(), Ended: time.Now()})
	}
	for range 3 {
		e.send(t.Context(), e.batch())
	}
	c.code = http.StatusOK
	e.send(t.Context(), e.batch())
	e.send(t.Context(), []Span{{Began: time.Now(), Ended: time.Now()}})
	if text := log.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "503 Service Unavailable") || !strings.Contains(text, "traces=5") {
		t.Errorf("the log is\n%s", text)
	}
}

func TestEndpoint(t *testing.T) {
	for endpoint, want := range map[string]string{
		"http://collector:4318": "http://collector:4318/v1/traces", "https://c.example/": "https://c.example/v1/traces", "http://c/otlp/v1/traces": "http://c/otlp/v1/traces",
		"collector:4318": "", "grpc://c": "", "http://": "", "http://u:p@c": "",
	} {
		e, err := New(endpoint, nil, slog.Default())
		if (err == nil) != (want != "") || err == nil && e.url != want {
			t.Errorf("%s: %v, %+v", endpoint, err, e)
		}
	}
}
