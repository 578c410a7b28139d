package cache

import (
	"bytes"
	"context"
	"flag"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/source"
	"github.com/fairlead/fairlead/source/crd"
)

// fill sets every field of a value.
func fill(v reflect.Value) {
	switch v.Interface().(type) {
	case netip.Addr:
		v.Set(reflect.ValueOf(netip.MustParseAddr("10.1.1.1")))
		return
	case netip.AddrPort:
		v.Set(reflect.ValueOf(netip.MustParseAddrPort("10.1.1.2:80")))
		return
	case netip.Prefix:
		v.Set(reflect.ValueOf(netip.MustParsePrefix("10.1.1.0/24")))
		return
	case time.Time:
		v.Set(reflect.ValueOf(time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)))
		return
	case service.Protocol:
		v.Set(reflect.ValueOf(service.UDP))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"app": "web"}).Convert(v.Type()))
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		v.SetUint(7)
	default:
		panic("the test does not know how to fill " + v.Type().String())
	}
}

var update = flag.Bool("update", false, "rewrite testdata")

// TestFormat round-trips every field of a Service through the file, whose format is in
// testdata. If the format changes, check whether to raise version.
func TestFormat(t *testing.T) {
	want := &state{Version: version, Chosen: true, Services: []*service.Service{{}}, Peers: []peer{{}}, Balancers: []netip.Addr{{}}, Senders: []netip.Addr{{}}, Announced: []announced{{}}}
	fill(reflect.ValueOf(want.Services[0]).Elem())
	fill(reflect.ValueOf(&want.Peers[0]).Elem())
	fill(reflect.ValueOf(&want.Balancers[0]).Elem())
	fill(reflect.ValueOf(&want.Senders[0]).Elem())
	fill(reflect.ValueOf(&want.Announced[0]).Elem())
	file := filepath.Join(t.TempDir(), "kept")
	if err := want.write(file); err != nil {
		t.Fatal(err)
	}
	got, err := parse(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(state{}), cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, netip.Prefix{})); diff != "" {
		t.Errorf("what was written is not what is read (-written +read):\n%s", diff)
	}
	const form = "testdata/form.json"
	text, err := os.ReadFile(file)
	if err == nil && *update {
		err = os.WriteFile(form, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	was, err := os.ReadFile(form)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(was), string(text)); diff != "" {
		t.Errorf("the form is another than in testdata (-testdata +now):\n%s", diff)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: others may read it", info.Mode(), err)
	}
}

// cluster is a source that the test controls.
type cluster struct {
	away bool
	says chan source.Snapshot
}

func (c *cluster) Run(ctx context.Context, publish func(source.Snapshot)) error {
	for {
		select {
		case s := <-c.says:
			publish(s)
		case <-ctx.Done():
			return nil
		}
	}
}

func (c *cluster) Unread() bool { return c.away }

func (c *cluster) Problems() (all []problem.Problem) {
	if c.away {
		all = append(all, problem.Problem{Object: "services", Message: "cannot be read"})
	}
	return all
}

// agent runs a Source and receives what it publishes.
type agent struct {
	*cluster
	pass   func([]crd.Peer) []problem.Problem
	got    chan source.Snapshot
	passed chan []crd.Peer
	stop   func()
}

func start(t *testing.T, file string, limit time.Duration, away bool) *agent {
	a := &agent{
		cluster: &cluster{away, make(chan source.Snapshot)}, got: make(chan source.Snapshot, 10), passed: make(chan []crd.Peer, 10),
	}
	s := New(Config{File: file, Limit: limit, Log: slog.New(slog.DiscardHandler)})
	a.pass = s.OnPeers(func(p []crd.Peer) []problem.Problem { a.passed <- p; return nil })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Before(a.cluster).Run(ctx, func(s source.Snapshot) { a.got <- s }) }()
	a.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	return a
}

// chosen returns one offer for all Services.
type chosen struct{ offer route.Offer }

func (c *chosen) Offers(*service.Service, netip.Addr) ([]route.Offer, string) {
	return []route.Offer{c.offer}, ""
}

func web(name string) *service.Service {
	return &service.Service{
		ID: service.ID{Namespace: "default", Name: name}, Method: service.Tunnel, Encapsulation: service.IPIP,
		Scheduler: service.Maglev, RingSize: 251, Survival: service.SecondChance, Health: service.DefaultHealthCheck,
		Frontends: []service.Frontend{{Key: service.Key{VIP: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: service.TCP}}},
	}
}

func names(s source.Snapshot) (all []string) {
	for _, one := range s.Services {
		all = append(all, one.ID.Name)
	}
	return all
}

// TestStory runs one agent with a cluster, and another after it without.
func TestStory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kept")
	peers := []crd.Peer{
		{Name: "open", Address: netip.AddrPortFrom(netip.Addr{}, 1179), Interface: "eth0"},
		{Name: "closed", Address: netip.MustParseAddrPort("10.0.0.2:179"), PasswordSecretRef: "p", Password: "hush"},
	}
	offer := route.Offer{
		By: "Advertisement edge", Prefix: netip.MustParsePrefix("10.1.0.0/16"), MinHealthyBackends: 2, Local: true,
		Attributes: route.Attributes{Communities: "65000:1", MED: 7, Peers: "open"}, WeightBy: route.WeightByEndpoints,
	}
	first := start(t, file, time.Hour, false)
	first.pass(peers)
	others := []netip.Addr{netip.MustParseAddr("10.0.0.3")}
	first.says <- source.Snapshot{Services: []*service.Service{web("web")}, Advertisements: &chosen{offer}, Balancers: others, Senders: others}
	<-first.got
	first.stop()
	if text, err := os.ReadFile(file); err != nil || strings.Contains(string(text), "hush") {
		t.Fatalf("kept: %s, %v; want no password", text, err)
	}

	second := start(t, file, time.Hour, true)
	now := <-second.got
	if got := <-second.passed; len(got) != 1 || got[0] != peers[0] {
		t.Errorf("peers %v; want that without a password", got)
	}
	if !slices.Equal(names(now), []string{"web"}) || !slices.Equal(now.Balancers, others) || !slices.Equal(now.Senders, others) {
		t.Errorf("served: %v by %v, accepted from %v", names(now), now.Balancers, now.Senders)
	}
	if all, why := now.Advertisements.Offers(now.Services[0], netip.MustParseAddr("10.1.1.1")); !slices.Equal(all, []route.Offer{offer}) || why != "" {
		t.Errorf("announced %v, %q", all, why)
	}
	if len(now.Problems) != 2 || !strings.Contains(now.Problems[1].Message, "what its predecessor read last") {
		t.Errorf("problems %v", now.Problems)
	}
	second.says <- source.Snapshot{Services: []*service.Service{web("other")}}
	if now = <-second.got; !slices.Equal(names(now), []string{"other"}) || len(now.Problems) > 0 {
		t.Errorf("when the cluster is back: %v, %v", names(now), now.Problems)
	}
	second.stop()

	// A release without senders has cached none: they are unknown.
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, bytes.ReplaceAll(text, []byte(`"senders"`), []byte(`"older"`)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	third := start(t, file, time.Hour, true)
	if now = <-third.got; now.Senders != nil {
		t.Errorf("senders %v; want them unknown", now.Senders)
	}
	third.stop()
}

// TestNotCounted has unusable files: nothing is published.
func TestNotCounted(t *testing.T) {
	for name, prepare := range map[string]func(file string) error{
		"none":      func(string) error { return nil },
		"broken":    func(file string) error { return os.WriteFile(file, []byte(`{"version":1,"services":[`), 0o600) },
		"no object": func(file string) error { return os.WriteFile(file, []byte(`{"version":1,"services":[null]}`), 0o600) },
		"invalid": func(file string) error {
			return os.WriteFile(file, []byte(`{"version":1,"services":[{"ID":"a/b"}]}`), 0o600)
		},
		"newer": func(file string) error { return os.WriteFile(file, []byte(`{"version":2,"services":[]}`), 0o600) },
		"too old": func(file string) error {
			old := time.Now().Add(-2 * time.Hour)
			return (&state{Version: version}).writeAt(file, old)
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "kept")
			if err := prepare(file); err != nil {
				t.Fatal(err)
			}
			a := start(t, file, time.Hour, true)
			time.Sleep(3 * look)
			a.stop()
			if len(a.got) > 0 {
				t.Errorf("gave out %v", <-a.got)
			}
		})
	}
}

// TestFuture checks that the cache is used if the clock was set back meanwhile.
func TestFuture(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kept")
	a := start(t, file, time.Hour, false)
	a.says <- source.Snapshot{Services: []*service.Service{web("web")}}
	<-a.got
	testkit.Eventually(t, time.Minute, func() error { _, err := os.Stat(file); return err })
	a.stop()
	later := time.Now().Add(2 * time.Hour)
	if err := os.Chtimes(file, later, later); err != nil {
		t.Fatal(err)
	}
	b := start(t, file, time.Hour, true)
	if s := <-b.got; len(s.Services) != 1 {
		t.Errorf("it begins with %+v", s)
	}
	b.stop()
}

// TestAge checks that a file's time is when the cluster was last readable, however often
// its problems change.
func TestAge(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kept")
	a := start(t, file, time.Hour, false)
	a.says <- source.Snapshot{Services: []*service.Service{web("web")}}
	<-a.got
	testkit.Eventually(t, time.Minute, func() error { _, err := os.Stat(file); return err })
	a.stop()
	old := time.Now().Add(-30 * time.Minute).Truncate(time.Second)
	if err := os.Chtimes(file, old, old); err != nil {
		t.Fatal(err)
	}
	b := start(t, file, time.Hour, true)
	<-b.got
	b.stop()
	if info, err := os.Stat(file); err != nil || !info.ModTime().Equal(old) {
		t.Errorf("an agent that read nothing made the file one of %s: %v", info.ModTime(), err)
	}
}
