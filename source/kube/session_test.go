package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/lab/testkit"
)

// writes counts the requests of agents that are not reads.
type writes struct {
	http.RoundTripper
	n atomic.Int32
}

func (w *writes) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		w.n.Add(1)
	}
	return w.RoundTripper.RoundTrip(r)
}

// sessioned is a cluster in which agents with the permissions of the deployment report.
type sessioned struct {
	*routed
	config *rest.Config
	writes writes
	log    testkit.Output // of agents
}

// TestSessions has load balancers report their BGP sessions, at first to a cluster without
// the resource.
func TestSessions(t *testing.T) {
	t.Parallel()
	r, c := newRouted(t)
	s := &sessioned{routed: r, config: rest.CopyConfig(c.Config)}
	s.config.Impersonate.UserName = agentUser
	s.config.Wrap(func(to http.RoundTripper) http.RoundTripper { s.writes.RoundTripper = to; return &s.writes })
	r.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: fairlead}")
	r.deploy("manifests/rbac.yaml")
	r.node("node-a", func(*corev1.Node) {})
	r.node("node-b", func(*corev1.Node) {})
	up := advertise.Peer{Name: "tor", Address: "10.0.0.110", State: advertise.Established, Since: time.Now(), BFD: "up", Sent: 2}

	a, b := s.agent("node-a", ""), s.agent("node-b", "")
	a.ReportSessions(t.Context(), []advertise.Peer{up})
	a.ReportSessions(t.Context(), []advertise.Peer{up})
	if said := s.log.String(); strings.Count(said, "does not define this resource") != 1 || strings.Contains(said, "level=WARN") || s.writes.n.Load() != 0 {
		t.Errorf("without the resource: %d writes; log:\n%s", s.writes.n.Load(), said)
	}
	r.deploy("crds/*.yaml")
	testkit.Eventually(t, patience, func() error {
		_, err := r.any.Resource(kinds["BGPSession"]).List(context.Background(), metav1.ListOptions{})
		return err
	})
	s.states(a, up)
	b.ReportSessions(t.Context(), []advertise.Peer{{Name: "tor", Address: "10.0.0.110", State: "connect", Since: time.Now(), LastError: "refused"}})
	s.want("node-a--tor established", "node-b--tor connect refused")
	s.columns()
	s.dedicated(up)
	s.successor(up)
	b.ReportSessions(t.Context(), nil) // it stops
	s.want()
	s.flaps(up)
	s.deleted(up)
	s.marked(up)
}

// marked has the controller mark a session while its agent cannot reach the API server.
func (s *sessioned) marked(up advertise.Peer) {
	s.t.Helper()
	a := s.agent("node-a", "")
	a.ReportSessions(s.t.Context(), []advertise.Peer{up})
	a.Renew(s.t.Context())
	_, err := s.any.Resource(kinds["BGPSession"]).Namespace("fairlead").Patch(s.t.Context(), "node-a--tor", types.MergePatchType, []byte(`{"status":{"state":"unknown"}}`), metav1.PatchOptions{})
	must(s.t, err)
	a.ReportSessions(s.t.Context(), []advertise.Peer{up})
	s.want("node-a--tor unknown")
	a.reporter.renewed = a.reporter.renewed.Add(-2 * heartbeatDuration)
	a.Renew(s.t.Context())
	a.ReportSessions(s.t.Context(), []advertise.Peer{up})
	s.want("node-a--tor established")
}

// agent returns the Source of a load balancer that knows its Node.
func (s *sessioned) agent(node, pod string) *Source {
	s.t.Helper()
	a, err := newFor(s.config, Config{Node: node, Pod: pod, Namespace: "fairlead", Log: slog.New(slog.NewTextHandler(&s.log, nil))})
	must(s.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- a.Run(ctx, nil) }()
	s.t.Cleanup(func() { cancel(); must(s.t, <-done) })
	testkit.Eventually(s.t, patience, func() error {
		if _, ok := a.Node(); !ok {
			return errors.New("the Node is not known")
		}
		return nil
	})
	return a
}

// all returns the BGPSessions of the cluster, sorted by name.
func (s *sessioned) all() []v1alpha1.BGPSession {
	s.t.Helper()
	list, err := s.any.Resource(kinds["BGPSession"]).List(context.Background(), metav1.ListOptions{})
	must(s.t, err)
	var all v1alpha1.BGPSessionList
	must(s.t, runtime.DefaultUnstructuredConverter.FromUnstructured(list.UnstructuredContent(), &all))
	return all.Items
}

// want checks the objects: name, state and error of each.
func (s *sessioned) want(want ...string) {
	s.t.Helper()
	var got []string
	for _, o := range s.all() {
		got = append(got, strings.TrimSpace(o.Name+" "+o.Status.State+" "+o.Status.LastError))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		s.t.Errorf("the sessions are %q, want %q; log:\n%s", got, want, &s.log)
	}
}

// columns checks what kubectl get shows.
func (s *sessioned) columns() {
	s.t.Helper()
	text, err := s.api.CoreV1().RESTClient().Get().AbsPath("/apis/fairlead.io/v1alpha1/bgpsessions").
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(s.t.Context())
	must(s.t, err)
	var table metav1.Table
	must(s.t, json.Unmarshal(text, &table))
	var names []string
	for _, c := range table.ColumnDefinitions {
		names = append(names, fmt.Sprint(c.Name, c.Priority))
	}
	const want = "[Name0 Node0 Peer0 Address0 State0 Since0 Prefixes0 BFD0 Last Error1 Age1]"
	if got := fmt.Sprint(names); got != want {
		s.t.Errorf("the columns are %s, want %s", got, want)
	}
	if got := fmt.Sprint(table.Rows[0].Cells[:5]); got != "[node-a--tor node-a tor 10.0.0.110 established]" {
		s.t.Errorf("the row is %s", got)
	}
}

// states has a session go down and up again.
func (s *sessioned) states(a *Source, up advertise.Peer) {
	s.t.Helper()
	ctx := s.t.Context()
	report := func(peers ...advertise.Peer) v1alpha1.BGPSession {
		s.t.Helper()
		a.ReportSessions(ctx, peers)
		all := s.all()
		if len(all) == 0 {
			s.t.Fatalf("there are no sessions; log:\n%s", &s.log)
		}
		return all[0]
	}
	report(up, advertise.Peer{Address: "10.0.0.7", State: "connect", Since: up.Since}, advertise.Peer{Address: "10.0.0.8", Unconfigured: true})
	s.want("node-a--10.0.0.7 connect", "node-a--tor established")
	first := report(up) // 10.0.0.7 is no longer configured
	s.want("node-a--tor established")
	node, err := s.api.CoreV1().Nodes().Get(ctx, "node-a", metav1.GetOptions{})
	must(s.t, err)
	if o := first.OwnerReferences; len(o) != 1 || o[0].Kind != "Node" || o[0].UID != node.UID {
		s.t.Errorf("the owners are %+v", o)
	}
	if st := first.Status; st.Node != "node-a" || st.Peer != "tor" || st.PeerAddress != "10.0.0.110" || st.AdvertisedPrefixes != 2 || st.BFD != "up" || st.Since.Unix() != up.Since.Unix() {
		s.t.Errorf("the status is %+v", st)
	}
	now := up
	now.Received, now.UpdatesSent, now.Since = 9, 9, up.Since.Truncate(time.Second) // not reported
	if again := report(now); again.ResourceVersion != first.ResourceVersion {
		s.t.Errorf("what has not changed is written again: %+v", again)
	}
	now.State, now.Since, now.LastError, now.Sent = "idle", up.Since.Add(time.Hour), "hold time expired", 0
	down := report(now)
	s.want("node-a--tor idle hold time expired")
	for _, state := range []string{"connect", "opensent", "idle"} { // attempts
		now.State, now.Since, now.LastError = state, now.Since.Add(time.Minute), "attempt "+state
		if again := report(now); again.ResourceVersion != down.ResourceVersion {
			s.t.Errorf("a failed attempt is written: %+v", again)
		}
	}
	w := a.reporter.sessions.written[down.Name]
	w.at = w.at.Add(-downPace)
	a.reporter.sessions.written[down.Name] = w
	if again := report(now); again.Status.LastError != "attempt idle" || !again.Status.Since.Equal(&down.Status.Since) {
		s.t.Errorf("after a minute: %+v", again.Status)
	}
	report(up)
	s.want("node-a--tor established")
}

// dedicated adds a dedicated load balancer on the same node.
func (s *sessioned) dedicated(up advertise.Peer) {
	s.t.Helper()
	ctx := s.t.Context()
	pod, err := s.api.CoreV1().Pods("fairlead").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-1"},
		Spec:       corev1.PodSpec{NodeName: "node-a", ServiceAccountName: "fairlead-agent", Containers: []corev1.Container{{Name: "agent", Image: "fairlead"}}},
	}, metav1.CreateOptions{})
	must(s.t, err)
	web := s.agent("node-a", "web-1")
	web.ReportSessions(ctx, []advertise.Peer{up})
	s.want("node-a--tor established", "node-a--web-1--tor established", "node-b--tor connect refused")
	o := s.all()[1]
	if of := o.OwnerReferences; len(of) != 1 || of[0].Kind != "Pod" || of[0].UID != pod.UID || o.Status.Node != "node-a/web-1" {
		s.t.Errorf("the owners of that of %s are %+v", o.Status.Node, of)
	}
	on, err := s.any.Resource(kinds["BGPSession"]).List(ctx, metav1.ListOptions{LabelSelector: "fairlead.io/node=node-a,fairlead.io/peer=tor"})
	must(s.t, err)
	if len(on.Items) != 2 {
		s.t.Errorf("there are %d sessions of node-a and tor", len(on.Items))
	}
	web.ReportSessions(ctx, nil)
	s.want("node-a--tor established", "node-b--tor connect refused")
	web.ReportSessions(ctx, []advertise.Peer{up})
}

// successor replaces the agent of node-a, which was killed, by one with another peer.
func (s *sessioned) successor(up advertise.Peer) {
	s.t.Helper()
	up.Name = "tor-2"
	s.agent("node-a", "").ReportSessions(s.t.Context(), []advertise.Peer{up})
	s.want("node-a--tor-2 established", "node-a--web-1--tor established", "node-b--tor connect refused")
	s.agent("node-a", "").ReportSessions(s.t.Context(), nil)
	s.agent("node-a", "web-1").ReportSessions(s.t.Context(), nil)
	s.want("node-b--tor connect refused")
}

// flaps counts the writes for 100 sessions.
func (s *sessioned) flaps(up advertise.Peer) {
	s.t.Helper()
	a, peers := s.agent("node-a", ""), make([]advertise.Peer, 100)
	report := func(what string, want int32) {
		s.t.Helper()
		before := s.writes.n.Load()
		a.ReportSessions(s.t.Context(), peers)
		if n := s.writes.n.Load() - before; n != want {
			s.t.Errorf("%s: %d writes, want %d", what, n, want)
		}
	}
	set := func(state, lastError string) {
		for i := range peers {
			peers[i] = up
			peers[i].Name, peers[i].State, peers[i].LastError = fmt.Sprint("tor-", i), state, lastError
		}
	}
	set(advertise.Established, "")
	report("new", 100)
	report("as before", 0)
	set("idle", "hold time expired")
	report("down", 100)
	set("connect", "connection refused")
	report("failed attempts", 0)
	set(advertise.Established, "")
	report("up", 100)
	report("as before", 0)
	peers = peers[:1]
	report("removed", 99)
	peers = nil
	report("stopped", 1)
	s.want()
}

// deleted has others delete an object, and then the resource.
func (s *sessioned) deleted(up advertise.Peer) {
	s.t.Helper()
	ctx, sessions := s.t.Context(), s.any.Resource(kinds["BGPSession"])
	a := s.agent("node-a", "")
	a.ReportSessions(ctx, []advertise.Peer{up})
	must(s.t, sessions.Namespace("fairlead").Delete(ctx, "node-a--tor", metav1.DeleteOptions{}))
	w := a.reporter.sessions.written["node-a--tor"]
	w.at = w.at.Add(-reportAgain)
	a.reporter.sessions.written["node-a--tor"] = w
	a.ReportSessions(ctx, []advertise.Peer{up})
	s.want("node-a--tor established")
	s.drop("CustomResourceDefinition", "bgpsessions.fairlead.io")
	testkit.Eventually(s.t, patience, func() error {
		if _, err := sessions.List(ctx, metav1.ListOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("BGPSessions are still there: %w", err)
		}
		return nil
	})
	before := s.log.String()
	up.Sent++
	for range 4 {
		a.ReportSessions(ctx, []advertise.Peer{up})
	}
	if now := strings.TrimPrefix(s.log.String(), before); strings.Count(now, "\n") != 2 { // the write failed, and the resource is awaited
		s.t.Errorf("the log is:\n%s", now)
	}
	s.deploy("crds/fairlead.io_bgpsessions.yaml")
	testkit.Eventually(s.t, patience, func() error {
		if a.ReportSessions(ctx, []advertise.Peer{up}); len(a.reporter.sessions.written) == 0 {
			return errors.New(s.log.String())
		}
		return nil
	})
	s.want("node-a--tor established")
}
