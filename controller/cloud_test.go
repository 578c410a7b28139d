package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/advertise/cloud"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/controller/cloudroutes"
	"github.com/fairlead/fairlead/core/route"
	labkube "github.com/fairlead/fairlead/lab/kube"
)

// sky is a fake cloud that records its routes, "10.1.1.0/24: a b" per line.
type sky struct {
	mu      sync.Mutex
	synced  []string
	refused cloud.Refused
	fail    error
}

func (s *sky) set(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

func (s *sky) Name() string { return "sky" }

func (s *sky) Sync(_ context.Context, of []cloud.Offer) (cloud.Refused, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	hops := cloud.Hops(of)
	var lines []string
	for _, p := range cloud.Prefixes(hops) {
		line := p.String() + ":"
		for _, h := range hops[p] {
			line += " " + h.Node
		}
		lines = append(lines, line)
	}
	s.synced = append(s.synced, strings.Join(lines, "\n"))
	return s.refused, s.fail
}

// last returns the last recorded routes, and how often routes were set.
func (s *sky) last() (string, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.synced) == 0 {
		return "nothing yet", 0
	}
	return s.synced[len(s.synced)-1], len(s.synced)
}

func (s *sky) wants(t *testing.T, want string) {
	t.Helper()
	eventually(t, "the cloud", func() string {
		if got, _ := s.last(); got != want {
			return fmt.Sprintf("has %q, want %q", got, want)
		}
		return ""
	})
}

func under(s *sky) func(*controller.Config) { return func(c *controller.Config) { c.Cloud = s } }

// severed is an agent's connection to the API server that can be cut, as if its node had
// died.
type severed struct {
	http.RoundTripper
	mu  sync.Mutex
	cut bool
}

func (s *severed) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	cut := s.cut
	s.mu.Unlock()
	if cut {
		return nil, errors.New("the line is cut")
	}
	return s.RoundTripper.RoundTrip(r)
}

func (s *severed) set(cut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = cut
}

// offer creates an agent with the permissions of the page on clouds.
func (w *world) offer(t *testing.T, node string) (*cloudroutes.Poster, *severed) {
	t.Helper()
	client, err := w.cluster.ConfigFor(agentUser)
	w.must(t, err)
	line := &severed{}
	client.Wrap(func(to http.RoundTripper) http.RoundTripper { line.RoundTripper = to; return line })
	p, err := cloudroutes.New(cloudroutes.Config{
		Client: client, Namespace: "fairlead", Node: node, Duration: 10 * time.Second, Patience: long, Log: slog.New(slog.DiscardHandler),
	})
	w.must(t, err)
	t.Cleanup(func() {
		line.set(true) // avoid waiting for a server that may be gone
		p.Patience = 0
		_ = p.Close()
	})
	return p, line
}

func routesBy(hop string, prefixes ...string) (all []route.Route) {
	for _, p := range prefixes {
		all = append(all, route.Route{Prefix: netip.MustParsePrefix(p), NextHop: netip.MustParseAddr(hop)})
	}
	return all
}

// TestCloud checks that what agents offer is routed to them, that they learn when a
// withdrawal is complete, that a dead agent's routes move, that the end of a controller
// changes nothing, and that agents know the state of the cloud.
func TestCloud(t *testing.T) {
	t.Parallel()
	w := newWorld(t, labkube.Options{})
	w.install(t)
	w.deploy(t, "manifests/rbac.yaml")
	above := &sky{}
	one, stopOne := w.control(t, named("one"), under(above))
	one.wants(t, "no right to Leases in namespace fairlead: set cloud.provider")
	w.must(t, w.apply(cloudRoles(t)))

	a, lineA := w.offer(t, "a")
	b, _ := w.offer(t, "b")
	w.must(t, a.Set(routesBy("10.0.0.1", "10.1.1.0/24", "10.1.2.0/24")))
	w.must(t, b.Set(routesBy("10.0.0.2", "10.1.1.0/24")))
	above.wants(t, "10.1.1.0/24: a b\n10.1.2.0/24: a")
	stands := func(p *cloudroutes.Poster, want string) {
		t.Helper()
		eventually(t, "the peer", func() string {
			if got := p.Peers()[0]; got.Address != "sky" || got.State+" "+got.LastError != want {
				return fmt.Sprintf("is %+v, want %s", got, want)
			}
			return ""
		})
	}
	stands(a, "established ")

	w.must(t, a.Set(routesBy("10.0.0.1", "10.1.1.0/24")))
	if left := a.Withdrawing(); len(left) != 1 || left[0].Prefix.String() != "10.1.2.0/24" || left[0].From != "cloud sky" {
		t.Errorf("just withdrawn, and waited for is %v", left)
	}
	confirmed(t, a)
	if got, _ := above.last(); got != "10.1.1.0/24: a b" {
		t.Errorf("what is confirmed to be withdrawn is led here: %s", got)
	}
	above.set(func() { above.fail = errors.New("500") })
	w.must(t, a.Set(nil))
	stands(a, "failing 500")
	if left := a.Withdrawing(); len(left) != 1 || left[0].Reason != "500" {
		t.Errorf("the cloud fails, and waited for is %v", left)
	}
	above.set(func() { above.fail = nil })
	confirmed(t, a)
	w.must(t, a.Set(routesBy("10.0.0.1", "10.1.1.0/24")))
	above.wants(t, "10.1.1.0/24: a b")

	two, _ := w.control(t, named("two"), under(above))
	two.wants(t, "another controller is the leader")
	_, before := above.last()
	stopOne()
	two.wants(t, "leading")
	eventually(t, "the next leader updates the cloud routes", func() string {
		if _, n := above.last(); n == before {
			return "nothing"
		}
		return ""
	})
	above.mu.Lock()
	if slices.ContainsFunc(above.synced[before:], func(routes string) bool { return routes != "10.1.1.0/24: a b" }) {
		t.Errorf("the new leader changed the routes of its predecessor: got %q", above.synced[before:])
	}
	above.refused = cloud.Refused{netip.MustParsePrefix("10.1.3.0/24"): "is another's"}
	above.mu.Unlock()

	lineA.set(true)
	above.wants(t, "10.1.1.0/24: b")
	eventually(t, "the dead one's Lease", func() string {
		_, err := w.core.CoordinationV1().Leases("fairlead").Get(context.Background(), "fairlead-offer-a", metav1.GetOptions{})
		if err == nil {
			return "is there"
		}
		return ""
	})
	eventually(t, "the dead one knows", func() string {
		if got := a.Peers()[0]; got.State != cloud.Failing || !strings.Contains(got.LastError, "the line is cut") {
			return fmt.Sprintf("%+v", got)
		}
		return ""
	})
	lineA.set(false)
	above.wants(t, "10.1.1.0/24: a b")

	w.must(t, b.Set(routesBy("10.0.0.2", "10.1.1.0/24", "10.1.3.0/24")))
	stands(b, "rejected 10.1.3.0/24: is another's")
	w.must(t, b.Close())
	above.wants(t, "10.1.1.0/24: a")
}

// confirmed waits until nothing that an agent has withdrawn is routed to it any more.
func confirmed(t *testing.T, p *cloudroutes.Poster) {
	t.Helper()
	eventually(t, "the withdrawal", func() string {
		if left := p.Withdrawing(); len(left) > 0 {
			return fmt.Sprint(left)
		}
		return ""
	})
}

// cloudRoles returns the permissions from the page on clouds.
func cloudRoles(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/clouds.md")
	if err != nil {
		t.Fatal(err)
	}
	_, roles, _ := strings.Cut(string(text), "## Permissions in the cluster")
	_, roles, _ = strings.Cut(roles, "```yaml\n")
	roles, _, found := strings.Cut(roles, "```")
	if !found {
		t.Fatal("docs/clouds.md has no rights")
	}
	return roles
}
