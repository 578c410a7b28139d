package controller_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/core/event"
	"github.com/fairlead/fairlead/core/problem"
	labkube "github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/source"
	"github.com/fairlead/fairlead/source/crd"
	sourcekube "github.com/fairlead/fairlead/source/kube"
	"github.com/fairlead/fairlead/source/object"
)

// agentUser has the permissions of deploy/manifests/rbac.yaml.
const agentUser = "system:serviceaccount:fairlead:fairlead-agent"

// exempt are permissions whose use a test cannot see, with reasons.
var exempt = map[string]string{
	controllerUser + ": patch events.k8s.io/events":   "of an Event that recurs within minutes",
	agentUser + ": create fairlead.io/nodereports":    "needed for the patch that creates one",
	agentUser + ": create fairlead.io/nodeheartbeats": "needed for the patch that creates one",
	agentUser + ": create fairlead.io/bgpsessions":    "needed for the patch that creates one",
}

// TestRightsAreThoseThatAreUsed runs an agent and the controller with the permissions of
// the manifests, and of the page on peers' passwords. According to the API server's audit
// log, all their requests must be permitted, and no permission may be unused.
func TestRightsAreThoseThatAreUsed(t *testing.T) {
	t.Parallel()
	audit, flags := auditFlags(t)
	w := newWorld(t, labkube.Options{Flags: flags})
	w.deploy(t, "manifests/rbac.yaml")
	peers := peersRole(t)
	w.must(t, w.apply(peers))
	w.awaitRights(t)
	w.install(t)
	w.agent(t, audit)
	whosePools(t, w)
	w.clear(t)
	agesOf(t, w)
	w.clear(t)
	silentAgents(t, w)
	w.clear(t)

	granted := grants(t, w)
	if len(granted) < 10 {
		t.Fatalf("%d rights are had: %q", len(granted), slices.Sorted(maps.Keys(granted)))
	}
	for right, why := range exempt {
		if !granted[right] {
			t.Errorf("%s is exempt (%s), and not had", right, why)
		}
		delete(granted, right)
	}
	eventually(t, "every right is used", func() string {
		used, refused := asked(t, audit)
		if len(refused) > 0 {
			t.Fatalf("refused: %q", refused)
		}
		var unused []string
		for right := range granted {
			if !used[right] {
				unused = append(unused, right)
			}
		}
		slices.Sort(unused)
		return strings.Join(unused, "\n")
	})
}

// awaitRights waits until the API server, which follows roles with a delay, permits the
// last permission of each kind of role to both.
func (w *world) awaitRights(t *testing.T) {
	t.Helper()
	eventually(t, "the roles count", func() string {
		for _, one := range []struct {
			user string
			may  authorizationv1.ResourceAttributes
		}{
			{agentUser, authorizationv1.ResourceAttributes{Verb: "list", Resource: "services"}},
			{agentUser, authorizationv1.ResourceAttributes{Verb: "get", Resource: "secrets", Namespace: "fairlead", Name: "router1"}},
			{controllerUser, authorizationv1.ResourceAttributes{Verb: "list", Resource: "services"}},
			{controllerUser, authorizationv1.ResourceAttributes{Verb: "create", Group: "coordination.k8s.io", Resource: "leases", Namespace: "fairlead"}},
		} {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: one.user, ResourceAttributes: &one.may}}
			got, err := w.core.AuthorizationV1().SubjectAccessReviews().Create(context.Background(), review, metav1.CreateOptions{})
			w.must(t, err)
			if !got.Status.Allowed {
				return fmt.Sprintf("%s may not yet %s %s", one.user, one.may.Verb, one.may.Resource)
			}
		}
		return ""
	})
}

// auditFlags make an API server log the requests of both.
func auditFlags(t *testing.T) (log string, flags []string) {
	t.Helper()
	log, policy := filepath.Join(t.TempDir(), "audit.log"), filepath.Join(t.TempDir(), "policy.yaml")
	text := fmt.Sprintf(`apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: Metadata, users: ["%s", "%s"]}
`, agentUser, controllerUser)
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return log, []string{"--audit-log-path=" + log, "--audit-policy-file=" + policy}
}

// peersRole returns the role for passwords of BGPPeers from docs/kubernetes.md.
func peersRole(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)```yaml\n([^`]*kind: Role\n.*?)\n```").FindSubmatch(page)
	if m == nil {
		t.Fatal("the page shows no Role")
	}
	return string(m[1])
}

// agent follows the cluster like an agent that is balancer and service proxy, until the
// test ends. It returns when the password of a peer has been read and the node delivered;
// watches may begin later.
func (w *world) agent(t *testing.T, audit string) {
	t.Helper()
	ctx := context.Background()
	_, err := w.core.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}, metav1.CreateOptions{})
	w.must(t, err)
	_, err = w.core.CoreV1().Secrets("fairlead").Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "router1"}, Data: map[string][]byte{"password": []byte("secret")},
	}, metav1.CreateOptions{})
	w.must(t, err)
	w.must(t, w.apply("apiVersion: fairlead.io/v1alpha1\nkind: BGPPeer\nmetadata: {name: router1}\n"+
		"spec: {peerAddress: 10.0.0.110, peerASN: 65021, passwordSecretRef: router1}\n---\n"+
		"apiVersion: fairlead.io/v1alpha1\nkind: Advertisement\nmetadata: {name: all}\nspec: {}\n"))
	defer w.drop(t, onNetwork(t, w).Name)
	kubeconfig, err := w.cluster.KubeconfigFor(agentUser)
	w.must(t, err)
	passwords := make(chan string, 8)
	s, err := sourcekube.New(sourcekube.Config{
		Kubeconfig: kubeconfig, Node: "node-a", Log: slog.New(slog.DiscardHandler),
		OnPeers: func(peers []crd.Peer) []problem.Problem {
			for _, p := range peers {
				select {
				case passwords <- p.Password:
				default: // delivered often enough
				}
			}
			return nil
		},
	})
	w.must(t, err)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	t.Cleanup(func() {
		cancel()
		w.must(t, <-ended)
	})
	read := make(chan struct{}, 1)
	go func() {
		ended <- s.Run(ctx, func(source.Snapshot) {
			select {
			case read <- struct{}{}:
			default:
			}
		})
	}()
	select {
	case p := <-passwords:
		if p != "secret" {
			t.Errorf("the password is %q", p)
		}
	case <-time.After(long):
		t.Fatalf("no BGP peer was delivered; problems: %q", s.Problems())
	}
	s.Report(ctx, map[sourcekube.Reported]sourcekube.Report{{Kind: "BGPPeer", Name: "router1"}: {}, {Kind: "Advertisement", Name: "all"}: {}})
	s.ReportSessions(ctx, []advertise.Peer{{Name: "router1", Address: "10.0.0.110", State: "connect", Since: time.Now()}})
	s.ReportSessions(ctx, nil)
	s.ReportServices(ctx, nil)
	s.Renew(ctx)
	s.RemoveServices(ctx)
	<-read
	eventually(t, "Pods are followed", func() string {
		if used, _ := asked(t, audit); !used[agentUser+": watch /pods"] {
			return fmt.Sprint(s.Problems())
		}
		return ""
	})
	if p := s.Problems(); len(p) > 0 {
		t.Errorf("problems: %q", p)
	}
	for range 2 {
		s.RecordEvent(sourcekube.Event{About: event.Object{Kind: "Node", Name: "node-a"}, Reason: "DrainStarted", Action: "Drain", Note: "Node node-a is cordoned"})
	}
	s.FlushEvents()
}

// onNetwork creates a Service whose Pods agents follow.
func onNetwork(t *testing.T, w *world) *corev1.Service {
	t.Helper()
	w.serve(t, "science", func(s *corev1.Service) { s.Annotations[object.AnnotationNetwork] = "science" })
	all := w.core.CoreV1().Services("default")
	s, err := all.Get(t.Context(), "science", metav1.GetOptions{})
	w.must(t, err)
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.9"}}
	s, err = all.UpdateStatus(t.Context(), s, metav1.UpdateOptions{})
	w.must(t, err)
	return s
}

// grants returns the permissions that the roles of the cluster grant to both.
func grants(t *testing.T, w *world) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("../deploy/manifests/rbac.yaml")
	w.must(t, err)
	all := map[string]bool{}
	rules, users := map[string][]rbacv1.PolicyRule{}, map[string]string{}
	for object := range strings.SplitSeq(string(text)+"\n---\n"+peersRole(t), "\n---\n") {
		var o struct {
			Kind     string
			Metadata struct{ Name string }
			Rules    []rbacv1.PolicyRule
			RoleRef  rbacv1.RoleRef
			Subjects []rbacv1.Subject
		}
		w.must(t, yaml.Unmarshal([]byte(object), &o))
		switch {
		case len(o.Rules) > 0:
			rules[o.Kind+o.Metadata.Name] = o.Rules
		case len(o.Subjects) > 0:
			users[o.RoleRef.Kind+o.RoleRef.Name] = "system:serviceaccount:" + o.Subjects[0].Namespace + ":" + o.Subjects[0].Name
		}
	}
	for role, of := range rules {
		for _, r := range of {
			for _, group := range r.APIGroups {
				for _, resource := range r.Resources {
					for _, verb := range r.Verbs {
						all[fmt.Sprintf("%s: %s %s/%s", users[role], verb, group, resource)] = true
					}
				}
			}
		}
	}
	return all
}

// asked reads the requests from the audit log, and those that were denied.
func asked(t *testing.T, log string) (used map[string]bool, refused []string) {
	t.Helper()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	used = map[string]bool{}
	for line := range bytes.Lines(text) {
		var e struct {
			Verb           string
			User           struct{ Username string }
			ObjectRef      struct{ APIGroup, Resource, Subresource string }
			ResponseStatus struct{ Code int }
		}
		if json.Unmarshal(line, &e) != nil || e.ObjectRef.Resource == "" {
			continue // a partial line, or no resource
		}
		resource := e.ObjectRef.Resource
		if e.ObjectRef.Subresource != "" {
			resource += "/" + e.ObjectRef.Subresource
		}
		right := fmt.Sprintf("%s: %s %s/%s", e.User.Username, e.Verb, e.ObjectRef.APIGroup, resource)
		if e.ResponseStatus.Code == 403 {
			refused = append(refused, right)
		}
		used[right] = true
	}
	return used, refused
}
