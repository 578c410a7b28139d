package server_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/fairlead/fairlead/vdn/server"
)

// guesser generates requests from the OpenAPI document: tame ones, which are nearly all
// valid, and others.
type guesser struct {
	*rand.Rand
	tame bool
}

// words is a small set, so that requests refer to each other's objects.
var words = []string{
	"a", "b", "science", "n1", "n2", "c1.net1", "c2.net1", "eth1", "eth2", "busan", "busan/a", "10.1.0.0/24", "10.1.0.0/30", "10.1.0.7", "10.1.0.1",
	"fd00::/64", "fd00::7", "::ffff:10.1.0.1", "10.1.0.1/24", "fe80::1%eth0", "0.0.0.0/0", "400M", "1.5G", "1e3M", "https://busan:7474", "02:00:00:00:00:01",
	"/run/netns/c1", "c1", "c2", "net1", "kernel", "", " ", "\x00", "A", "é", "../..", strings.Repeat("a", 300), "-", ".", "1e400",
}

// value returns a value of a schema, or in one of forty cases an invalid one.
func (g guesser) value(s *openapi3.Schema, deep int) any {
	if !g.tame && g.IntN(40) == 0 {
		return []any{nil, true, -1, 1e300, "x", []any{}, map[string]any{}, []any{map[string]any{"a": 1}}}[g.IntN(8)]
	}
	if len(s.AllOf) == 1 {
		return g.value(s.AllOf[0].Value, deep)
	}
	if len(s.OneOf) > 0 {
		return g.value(s.OneOf[g.IntN(len(s.OneOf))].Value, deep)
	}
	switch {
	case len(s.Enum) > 0:
		return s.Enum[g.IntN(len(s.Enum))]
	case s.Type.Is("array"):
		list := []any{}
		for range g.IntN(3) + int(s.MinItems) {
			list = append(list, g.value(s.Items.Value, deep+1))
		}
		return list
	case s.Type.Is("object"):
		return g.object(s, deep)
	case s.Type.Is("boolean"):
		return g.IntN(2) == 0
	case s.Type.Is("integer"), s.Type.Is("number"):
		return []any{1500, 0, 1, 7, 65536, -1, 0.5, uint64(1) << 63}[g.IntN(g.few(8))]
	}
	if example, is := s.Example.(string); is && (g.tame || g.IntN(2) == 0) {
		return example
	}
	return words[g.IntN(len(words))]
}

// few returns the number of choices, which is one for tame requests.
func (g guesser) few(n int) int {
	if g.tame {
		return 1
	}
	return n
}

func (g guesser) object(s *openapi3.Schema, deep int) any {
	object := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		if slices.Contains(s.Required, name) && (g.tame || g.IntN(30) > 0) || g.IntN(2+deep) == 0 && (!g.tame || g.IntN(8) == 0) {
			object[name] = g.value(p.Value, deep+1)
		}
		if v := object[name]; v == nil || v == "" || g.tame && (name == "name" || name == "domain") {
			delete(object, name) // equivalent; in a PUT the path has the name
		}
	}
	if !g.tame && g.IntN(40) == 0 {
		object["unknown"] = 1
	}
	return object
}

// body returns a request's body, occasionally invalid JSON.
func (g guesser) body(o *openapi3.Operation) string {
	if o.RequestBody == nil {
		return ""
	}
	text, err := json.Marshal(g.value(o.RequestBody.Value.Content["application/json"].Schema.Value, 0))
	if err != nil {
		panic(err)
	}
	if len(text) > 0 && g.IntN(40) == 0 {
		text = text[:g.IntN(len(text))]
	}
	return string(text)
}

func (g guesser) path(path string) string {
	for _, part := range []string{"{name}", "{id}", "{node}", "{domain}"} {
		word := words[g.IntN(len(words))]
		if strings.Trim(word, "./") == "" {
			word = "a" // otherwise it is another path
		}
		path = strings.Replace(path, part, url.PathEscape(word), 1)
	}
	if g.IntN(4) == 0 {
		values := append([]string{"0", "1", "1ms"}, slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == "" })...)
		path += "?" + []string{"after", "wait", "network", "node", "x"}[g.IntN(5)] + "=" + url.QueryEscape(values[g.IntN(len(values))])
	}
	return path
}

// TestAnything sends thousands of requests generated from the OpenAPI document. Each
// response must conform to the document (described checks that), none may be an internal
// error, and in the end no address may belong to two hosts. FAIRLEAD_REQUESTS and
// FAIRLEAD_SEED select others.
func TestAnything(t *testing.T) {
	requests, seed := setting(t, "FAIRLEAD_REQUESTS", 6000), setting(t, "FAIRLEAD_SEED", 1)
	r := start(t, server.Options{})
	g := guesser{Rand: rand.New(rand.NewPCG(uint64(seed), 0))}
	doc := document(t)
	paths := slices.Sorted(func(yield func(string) bool) {
		for p := range doc.Paths.Map() {
			if !yield(p) {
				return
			}
		}
	})
	check(t, r.PutNetwork(r.ctx, network("science", "10.5.0.0/24")))
	good := map[string]int{}
	for range requests {
		path := paths[g.IntN(len(paths))]
		operations := doc.Paths.Value(path).Operations()
		for _, method := range []string{"GET", "PUT", "POST", "DELETE"} {
			o := operations[method]
			if o == nil || method == "DELETE" && g.IntN(5) > 0 {
				continue
			}
			g.tame = g.IntN(3) == 0
			status, said := r.ask(t, method, g.path(path), g.body(o))
			if status >= 500 {
				t.Fatalf("seed %d: %s %s: %d %s", seed, method, path, status, said)
			}
			if status < 300 {
				good[method+" "+path]++
			}
		}
	}
	for _, must := range []string{"PUT /v1/networks/{name}", "POST /v1/attachments", "PUT /v1/nodes/{node}", "PUT /v1/peers/{domain}", "DELETE /v1/attachments/{id}", "GET /v1/view"} {
		if good[must] == 0 {
			t.Errorf("%s never went well, so that it says little: %v", must, good)
		}
	}
	whose := map[netip.Addr]string{}
	for _, a := range r.store.Attachments("", "") {
		for _, p := range a.Addresses {
			if other, taken := whose[p.Addr()]; taken {
				t.Errorf("%s is of %s and of %s", p.Addr(), other, a.ID)
			}
			whose[p.Addr()] = a.ID
		}
	}
}

func setting(t *testing.T, name string, otherwise int) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv(name))
	if os.Getenv(name) == "" {
		return otherwise
	}
	if err != nil {
		t.Fatal(fmt.Errorf("%s: %w", name, err))
	}
	return n
}
