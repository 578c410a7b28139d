package server_test

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/google/go-cmp/cmp"

	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/server"
)

func document(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(server.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestTheDocumentIsValid(t *testing.T) {
	if err := document(t).Validate(context.Background()); err != nil {
		t.Error(err)
	}
	r := start(t, server.Options{})
	if status, text := r.ask(t, "GET", "/v1/openapi.json", ""); status != 200 || !strings.Contains(text, `"openapi":"3.0.3"`) {
		t.Errorf("%d %.100s", status, text)
	}
}

func TestTheDocumentHasEveryRow(t *testing.T) {
	var documented []string
	for path, item := range document(t).Paths.Map() {
		for method := range item.Operations() {
			documented = append(documented, method+" "+path)
		}
	}
	rows := server.Rows(start(t, server.Options{}).server)
	slices.Sort(rows)
	slices.Sort(documented)
	if d := cmp.Diff(rows, documented); d != "" {
		t.Errorf("-answered +documented:\n%s", d)
	}
}

// types are the Go types of the object schemas.
var types = map[string]any{
	"Network": vdn.Network{}, "NetworkChange": vdn.Network{}, "Subnet": vdn.Subnet{}, "Range": vdn.Range{}, "Reservation": vdn.Reservation{},
	"Route": vdn.Route{}, "DNS": vdn.DNS{}, "AttachmentRequest": vdn.AttachmentRequest{}, "Attachment": vdn.Attachment{},
	"UpReport": vdn.UpReport{}, "Lease": vdn.Lease{}, "Uplink": vdn.Uplink{}, "NodeReport": vdn.NodeReport{}, "NodeView": vdn.NodeView{},
	"Counter": vdn.Counter{}, "CounterRate": vdn.CounterRate{}, "Plan": vdn.Plan{}, "Slice": vdn.Slice{}, "View": vdn.View{},
	"Peer": vdn.Peer{}, "PeerChange": vdn.Peer{}, "PeerView": vdn.PeerView{}, "SharedNetwork": vdn.SharedNetwork{}, "SharedHost": vdn.SharedHost{},
	"Valid": server.Valid{}, "Released": server.Released{}, "Failure": server.Failure{}, "Health": server.Health{},
}

// mayLack lists fields that are optional in a request body although every response has
// them.
var mayLack = map[string][]string{
	"NetworkChange": {"name"}, "PeerChange": {"domain"}, "NodeReport": {"name", "uplinks", "applied"},
	"Counter": {"network", "device", "sentBytes"},
}

// TestEverySchemaIsItsType compares each field's name, kind and whether it is required.
func TestEverySchemaIsItsType(t *testing.T) {
	schemas := document(t).Components.Schemas
	for name, ref := range schemas {
		_, known := types[name]
		if known != ref.Value.Type.Is("object") {
			t.Errorf("schema %s: is an object: %v, has a type: %v", name, !known, known)
		}
	}
	for name, value := range types {
		ref := schemas[name]
		if ref == nil {
			t.Errorf("%s has no schema", name)
			continue
		}
		schema, want := ref.Value, fields(reflect.TypeOf(value))
		if d := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(schema.Properties))); d != "" {
			t.Errorf("%s: -fields +properties:\n%s", name, d)
		}
		var always []string
		for field, f := range want {
			if !f.optional && !slices.Contains(mayLack[name], field) {
				always = append(always, field)
			}
			if p := schema.Properties[field]; p != nil && !fits(f.of, p.Value) {
				t.Errorf("%s.%s: of Go's %s, but of JSON's %v", name, field, f.of, typeOf(p.Value))
			}
		}
		slices.Sort(always)
		if d := cmp.Diff(always, slices.Sorted(slices.Values(schema.Required)), cmp.Transformer("nil", func(s []string) string { return strings.Join(s, " ") })); d != "" {
			t.Errorf("%s: -always there +required:\n%s", name, d)
		}
		if schema.AdditionalProperties.Has == nil || *schema.AdditionalProperties.Has {
			t.Errorf("%s: unknown fields are refused, but not in its schema", name)
		}
	}
}

type field struct {
	of       reflect.Type
	optional bool
}

func fields(of reflect.Type) map[string]field {
	all := map[string]field{}
	for f := range of.Fields() {
		if f.Anonymous {
			maps.Copy(all, fields(f.Type))
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		all[name] = field{f.Type, strings.HasPrefix(options, "omit")}
	}
	return all
}

// typeOf looks through schema wrappers that only add a description.
func typeOf(s *openapi3.Schema) string {
	for len(s.AllOf) == 1 {
		s = s.AllOf[0].Value
	}
	if len(s.OneOf) > 0 {
		s = s.OneOf[0].Value
	}
	if s.Type == nil || len(*s.Type) == 0 {
		return ""
	}
	return (*s.Type)[0]
}

func fits(of reflect.Type, s *openapi3.Schema) bool {
	want := map[reflect.Kind]string{
		reflect.String: "string", reflect.Bool: "boolean", reflect.Slice: "array", reflect.Map: "object", reflect.Struct: "object",
		reflect.Int: "integer", reflect.Int64: "integer", reflect.Uint16: "integer", reflect.Uint64: "integer", reflect.Float64: "number",
	}[of.Kind()]
	switch of {
	case reflect.TypeFor[vdn.Rate](), reflect.TypeFor[netip.Addr](), reflect.TypeFor[netip.Prefix]():
		want = "string"
	}
	return typeOf(s) == want && (want != "array" || fits(of.Elem(), s.Items.Value))
}

// described checks a server against the document in every test of this package: all
// responses and accepted requests must be documented.
func described(t *testing.T, h http.Handler) http.Handler {
	t.Helper()
	router, err := legacy.NewRouter(document(t))
	if err != nil {
		t.Fatal(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		route, params, err := router.FindRoute(r)
		if err != nil {
			h.ServeHTTP(w, r) // not a route of the API
			return
		}
		sent, _ := io.ReadAll(r.Body) // a client that disconnects fails its own test
		r.Body = io.NopCloser(bytes.NewReader(sent))
		record := httptest.NewRecorder()
		h.ServeHTTP(record, r)
		r.Body = io.NopCloser(bytes.NewReader(sent))
		if err := compare(r, route, params, record); err != nil {
			t.Errorf("%s %s %.200s: %d %.300s: %v", r.Method, r.URL, sent, record.Code, record.Body, err)
		}
		maps.Copy(w.Header(), record.Header())
		w.WriteHeader(record.Code)
		_, _ = w.Write(record.Body.Bytes()) // a client that disconnects fails its own test
	})
}

func compare(r *http.Request, route *routers.Route, params map[string]string, got *httptest.ResponseRecorder) error {
	in := &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route, Options: &openapi3filter.Options{
		AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true,
	}}
	if got.Code < http.StatusBadRequest {
		if err := openapi3filter.ValidateRequest(r.Context(), in); err != nil {
			return err
		}
	}
	if got.Code == http.StatusNotModified || strings.HasPrefix(got.Header().Get("Content-Type"), "text/plain") {
		return nil
	}
	return openapi3filter.ValidateResponse(r.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: got.Code, Header: got.Header(), Body: io.NopCloser(bytes.NewReader(got.Body.Bytes())), Options: in.Options,
	})
}
