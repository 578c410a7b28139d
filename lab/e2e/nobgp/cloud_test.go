package nobgp_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/cloud"
	"github.com/fairlead/fairlead/advertise/cloud/webhook"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/testkit"
)

// operator is the program behind a webhook: it writes the routes that it receives to the
// client's routing table.
type operator struct {
	f  *flat
	mu sync.Mutex
	// hops are the nodes' addresses by prefix.
	hops map[string][]cloud.Hop
	// broken makes it answer 500 and do nothing.
	broken bool
}

func (o *operator) set(broken bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.broken = broken
}

const sesame = "open sesame"

func (o *operator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	var s webhook.State
	if err == nil {
		err = json.Unmarshal(body, &s)
	}
	if err != nil || r.Header.Get(webhook.HeaderSignature) != webhook.Sign(sesame, r.Header.Get(webhook.HeaderTime), body) {
		http.Error(w, "no such state, or not signed", http.StatusForbidden)
		return
	}
	if o.broken {
		http.Error(w, "broken", http.StatusInternalServerError)
		return
	}
	next := map[string][]cloud.Hop{}
	for _, route := range s.Routes {
		next[route.Prefix.String()] = route.NextHops
	}
	for p, hops := range o.hops {
		for _, h := range hops {
			if h.Node != s.Node {
				next[p] = append(next[p], h)
			}
		}
	}
	for p := range o.hops {
		if len(next[p]) == 0 {
			err = o.ip("route", "del", p)
		}
	}
	for p, hops := range next {
		args := []string{"route", "replace", p}
		for _, h := range hops {
			args = append(args, "nexthop", "via", h.Addr.String())
		}
		if len(hops) > 0 && err == nil {
			err = o.ip(args...)
		}
	}
	if o.hops = next; err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// ip changes the client's routing table.
func (o *operator) ip(args ...string) error {
	cmd := exec.Command("ip", args...)
	var said strings.Builder
	cmd.Stderr = &said
	p, err := o.f.lab.Host("client").Start(cmd)
	if err != nil {
		return err
	}
	if <-p.Done(); !cmd.ProcessState.Success() {
		return fmt.Errorf("ip %s: %s", strings.Join(args, " "), said.String())
	}
	return nil
}

// leads returns the nodes to which every VIP is routed, or an error if VIPs differ.
func (o *operator) leads() (nodes []string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, vip := range o.f.vips {
		var now []string
		for _, h := range o.hops[fmt.Sprintf("%s/%d", vip.Addr(), vip.Addr().BitLen())] {
			now = append(now, h.Node)
		}
		slices.Sort(now)
		if nodes != nil && !slices.Equal(nodes, now) {
			return nil, fmt.Errorf("%s is routed to %q, others to %q", vip, now, nodes)
		}
		nodes = append([]string{}, now...)
	}
	return nodes, nil
}

func (o *operator) wants(nodes ...string) {
	o.f.t.Helper()
	testkit.Eventually(o.f.t, fixture.Within, func() error {
		got, err := o.leads()
		if err == nil && !slices.Equal(got, nodes) {
			err = fmt.Errorf("routed to %q, want %q", got, nodes)
		}
		return err
	})
}

// TestCloudByWebhook serves real connections where only a webhook knows which load
// balancers have the VIPs: agents report VIPs when they are programmed, and withdraw them
// at a graceful shutdown.
func TestCloudByWebhook(t *testing.T) {
	f := newFlat(t)
	o := &operator{f: f}
	ln, err := f.lab.Host("client").Listen("tcp", "10.0.0.9:8080")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: o}
	t.Cleanup(func() { _ = server.Close() })
	go func() { _ = server.Serve(ln) }()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(sesame+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--cloud", "webhook", "--webhook-url", "http://10.0.0.9:8080/", "--webhook-secret-file", secret}
	one := f.start("lb1", args...)
	o.wants("lb1")
	for _, vip := range f.vips {
		fixture.BothAnswer(t, f.lab, vip)
	}
	f.start("lb2", args...)
	o.wants("lb1", "lb2")
	f.World.Eventually(t, "lb2", func(s status.Status) error {
		if len(s.Peers) != 1 || s.Peers[0].Address != "webhook" || s.Peers[0].State != advertise.Established {
			return fmt.Errorf("peers: %+v", s.Peers)
		}
		return nil
	})
	if err := one.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-one.Done()
	if got, err := o.leads(); err != nil || !slices.Equal(got, []string{"lb2"}) {
		t.Errorf("after lb1 has exited, VIPs are routed to %q, %v", got, err)
	}
	for _, vip := range f.vips {
		fixture.BothAnswer(t, f.lab, vip)
	}
	f.World.Eventually(t, "lb2", func(s status.Status) error {
		for _, r := range s.Routes {
			if !r.Advertised {
				return fmt.Errorf("%s is not announced: %s", r.Prefix, r.Reason)
			}
		}
		return nil
	})

	// The operator's program breaks, and the last load balancer is drained: the drain
	// does not complete until that program has removed the routes, and the load balancer
	// keeps serving in the meantime.
	o.set(true)
	_, errs, code := f.Fairlead(t, "", "drain", "--wait", "12s", "--socket", cluster.Socket("lb2"))
	const waits = "waiting for withdrawal from cloud webhook since "
	if code == 0 || !strings.Contains(errs, waits) || !strings.Contains(errs, "500 Internal Server Error") {
		t.Errorf("drain exits with %d: %s", code, errs)
	}
	for _, command := range [][]string{{"status"}, {"get", "routes"}} {
		if out, _, _ := f.Fairlead(t, "", append(command, "--socket", cluster.Socket("lb2"))...); !strings.Contains(out, waits) {
			t.Errorf("%s does not show what it waits for:\n%s", command, out)
		}
	}
	for _, vip := range f.vips {
		fixture.BothAnswer(t, f.lab, vip)
	}
	o.set(false)
	if _, errs, code := f.Fairlead(t, "", "drain", "--wait", "1m", "--socket", cluster.Socket("lb2")); code != 0 {
		t.Errorf("drain exits with %d: %s", code, errs)
	}
	o.wants()
}
