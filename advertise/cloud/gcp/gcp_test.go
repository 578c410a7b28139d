package gcp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/oauth2"

	"github.com/fairlead/fairlead/advertise/cloud"
	"github.com/fairlead/fairlead/core/route"
)

// computeServer implements the parts of Compute Engine that the tests use.
type computeServer struct {
	t      *testing.T
	mu     sync.Mutex
	routes []*networkRoute
	wrote  []string
	// fail contains answers to return instead of the real one: by method, once.
	fail map[string]func(http.ResponseWriter)
	// broken is the prefix whose operations fail.
	broken string
	ops    map[string]string
	lists  int
}

const base = "/projects/shop/global/"

func (s *computeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer example" {
		s.t.Errorf("no token: %v", r.Header)
	}
	what, _ := strings.CutPrefix(r.URL.Path, base)
	kind, name, _ := strings.Cut(what, "/")
	if f := s.fail[r.Method]; f != nil {
		delete(s.fail, r.Method)
		f(w)
		return
	}
	switch {
	case r.Method == http.MethodGet && kind == "routes":
		s.list(w, r.URL.Query().Get("pageToken"))
	case r.Method == http.MethodPost && strings.HasSuffix(name, "/wait"):
		id := strings.TrimSuffix(name, "/wait")
		op := operation{Name: id, Status: "RUNNING"}
		if why, asked := s.ops[id]; asked {
			op.Status = "DONE"
			if why != "" {
				op.Error.Errors = append(op.Error.Errors, operationError{"QUOTA_EXCEEDED", why})
			}
		}
		if s.ops[id] == "" {
			s.ops[id] = "" // it has finished at the next query
		}
		s.give(w, op)
	case r.Method == http.MethodPost && kind == "routes":
		s.insert(w, r)
	case r.Method == http.MethodDelete && kind == "routes":
		s.wrote = append(s.wrote, "delete "+s.words(name))
		s.routes = slices.DeleteFunc(s.routes, func(r *networkRoute) bool { return r.Name == name })
		s.give(w, operation{Name: "op-delete-" + name, Status: "PENDING"})
	default:
		s.t.Errorf("asked for %s %s", r.Method, r.URL)
	}
}

// list returns one route per page.
func (s *computeServer) list(w http.ResponseWriter, token string) {
	i := 0
	_, _ = fmt.Sscan(token, &i)
	page := map[string]any{}
	if i < len(s.routes) {
		page["items"], page["nextPageToken"] = s.routes[i:i+1], fmt.Sprint(i+1)
	}
	s.lists++
	s.give(w, page)
}

func (s *computeServer) insert(w http.ResponseWriter, r *http.Request) {
	var made networkRoute
	if err := json.NewDecoder(r.Body).Decode(&made); err != nil {
		s.t.Error(err)
	}
	op := "op-insert-" + made.Name
	if made.DestRange == s.broken {
		s.ops[op] = "no room for " + made.DestRange
	} else {
		s.routes = append(s.routes, &made)
		s.wrote = append(s.wrote, "insert "+s.words(made.Name))
	}
	s.give(w, operation{Name: op, Status: "PENDING"})
}

func (s *computeServer) words(name string) string {
	i := slices.IndexFunc(s.routes, func(r *networkRoute) bool { return r.Name == name })
	if i < 0 {
		return name
	}
	r := s.routes[i]
	return fmt.Sprintf("%s by %s in %s, %d: %s", r.DestRange, r.NextHopIP, r.Network, r.Priority, r.Description)
}

func (s *computeServer) give(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		s.t.Error(err)
	}
}

func (s *computeServer) wants(want ...string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.wrote)
	if d := cmp.Diff(want, s.wrote); d != "" {
		s.t.Errorf("written, -want +got:\n%s", d)
	}
	s.wrote = nil
}

// answer returns an error response.
func answer(code int, reason, after string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		if after != "" {
			w.Header().Set("Retry-After", after)
		}
		w.WriteHeader(code)
		_, _ = fmt.Fprintf(w, `{"error":{"code":%d,"message":"said the server","errors":[{"reason":%q,"message":"said the server"}]}}`, code, reason)
	}
}

func world(t *testing.T) (*computeServer, Config) {
	s := &computeServer{t: t, fail: map[string]func(http.ResponseWriter){}, ops: map[string]string{}}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return s, Config{Owner: "lab", Project: "shop", Network: "front", Priority: 900, Endpoint: h.URL + "/",
		HTTP: oauth2.NewClient(context.Background(), oauth2.StaticTokenSource(&oauth2.Token{AccessToken: "example"}))}
}

func provider(t *testing.T, c Config) *Provider {
	t.Helper()
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func offer(node, hop string, prefixes ...string) cloud.Offer {
	o := cloud.Offer{Node: node}
	for _, p := range prefixes {
		o.Routes = append(o.Routes, route.Route{Prefix: netip.MustParsePrefix(p), NextHop: netip.MustParseAddr(hop)})
	}
	return o
}

func does(t *testing.T, p *Provider, refused string, of ...cloud.Offer) {
	t.Helper()
	got, err := p.Sync(context.Background(), of)
	if err != nil || got.Words() != refused {
		t.Errorf("refused %q, %v", got.Words(), err)
	}
}

const ours = " in projects/shop/global/networks/front, 900: Made by Fairlead, owner lab, for balancer "

// Every load balancer of a prefix has a route; that of a dead node is deleted, and a new
// provider finds what its predecessor created.
func TestRoutes(t *testing.T) {
	s, c := world(t)
	p := provider(t, c)
	a, b := offer("a", "10.0.0.1", "10.1.1.0/24"), offer("b", "10.0.0.2", "10.1.1.0/24")
	does(t, p, "", a, b)
	s.wants("insert 10.1.1.0/24 by 10.0.0.1"+ours+"a", "insert 10.1.1.0/24 by 10.0.0.2"+ours+"b")
	for _, r := range s.routes {
		if len(r.Name) > 63 || !strings.HasPrefix(r.Name, "fairlead-lab-") {
			t.Errorf("name %s", r.Name)
		}
	}
	does(t, provider(t, c), "", a, b)
	s.wants()
	does(t, p, "", b)
	s.wants("delete 10.1.1.0/24 by 10.0.0.1" + ours + "a")
	does(t, p, "")
	s.wants("delete 10.1.1.0/24 by 10.0.0.2" + ours + "b")
}

// Nothing is touched that belongs to another owner or another network, was created by
// someone else or, if a node acts for itself, belongs to another node.
func TestForeignRoutesAreLeft(t *testing.T) {
	s, c := world(t)
	s.routes = []*networkRoute{
		{Name: "fairlead-lab-0123", DestRange: "10.1.1.0/24", Network: "x/networks/front", Priority: 100, Description: "by hand"},
		{Name: "fairlead-other-0123", DestRange: "10.1.2.0/24", Network: "x/networks/front", Description: "Made by Fairlead, owner other, for balancer a"},
		{Name: "fairlead-lab-4567", DestRange: "10.1.3.0/24", Network: "x/networks/back", Description: "Made by Fairlead, owner lab, for balancer a"},
		{Name: "fairlead-lab-89ab", DestRange: "10.1.4.0/24", Network: "x/networks/front", Description: "Made by Fairlead, owner lab, for balancer b"},
	}
	c.Node = "a"
	does(t, provider(t, c), "10.1.1.0/24: network front has a route fairlead-lab-0123 of it that Fairlead has not made, and leaves: delete it, or announce another prefix; "+
		"10.1.2.0/24: network front has a route fairlead-other-0123 of it that Fairlead has not made, and leaves: delete it, or announce another prefix",
		offer("a", "10.0.0.1", "10.1.1.0/24", "10.1.2.0/24", "10.1.3.0/24"))
	s.wants("insert 10.1.3.0/24 by 10.0.0.1" + ours + "a")
	does(t, provider(t, c), "")
	s.wants("delete 10.1.3.0/24 by 10.0.0.1" + ours + "a")
}

// A failure is reported with its fix, and does not block anything else.
func TestFailures(t *testing.T) {
	s, c := world(t)
	p := provider(t, c)
	of := []cloud.Offer{offer("a", "10.0.0.1", "10.1.1.0/24", "10.1.2.0/24")}
	fails := func(words string) error {
		t.Helper()
		_, err := p.Sync(context.Background(), of)
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %s", err, words)
		}
		return err
	}
	s.fail[http.MethodPost] = answer(403, "forbidden", "")
	fails("give the service account a role with compute.routes.create (docs/clouds.md): said the server")
	if len(s.routes) != 1 {
		t.Errorf("%d routes, want the other one", len(s.routes))
	}
	s.fail[http.MethodGet] = answer(403, "rateLimitExceeded", "7")
	if busy, ok := fails("too many requests").(*cloud.Busy); !ok || busy.After != 7*time.Second {
		t.Errorf("want a Busy error with the time to wait, got %v", busy)
	}
	s.fail[http.MethodGet] = answer(404, "notFound", "")
	fails("is --gcp-project right")
	s.fail[http.MethodGet] = answer(401, "authError", "")
	fails("credentials rejected")
	s.broken = "10.1.2.0/24"
	s.mu.Lock()
	s.routes = nil
	s.mu.Unlock()
	fails("QUOTA_EXCEEDED: no room for 10.1.2.0/24")
	s.broken, s.ops = "", map[string]string{}
	does(t, p, "", of...)
	if len(s.routes) != 2 {
		t.Errorf("%d routes, want 2", len(s.routes))
	}
}

func TestNewRefuses(t *testing.T) {
	for want, c := range map[string]Config{
		"--gcp-project, --gcp-network":       {Owner: "lab", Network: "front"},
		"is not between 0 and 65535":         {Owner: "lab", Network: "front", Project: "shop", Priority: 65536},
		`the owner "" is not 1 to 20 of a-z`: {Network: "front", Project: "shop"},
	} {
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestPermissionsOfThePage checks that the page's role has all permissions that errors
// name as missing, and the one required for a route's network.
func TestPermissionsOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/clouds.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("gcp.go")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"compute.networks.updatePolicy"}
	for _, m := range regexp.MustCompile(`words\("(compute\.\w+\.\w+)"`).FindAllStringSubmatch(string(source), -1) {
		want = append(want, m[1])
	}
	var got []string
	for _, m := range regexp.MustCompile(`(?m)^  - (compute\.\S+)$`).FindAllStringSubmatch(string(page), -1) {
		got = append(got, m[1])
	}
	slices.Sort(want)
	slices.Sort(got)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
