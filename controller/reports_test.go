package controller_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/source"
	sourcekube "github.com/fairlead/fairlead/source/kube"
	"github.com/fairlead/fairlead/source/object"
)

// reported has the agents of two nodes report what they have done with a Service.
func reported(t *testing.T, w *world) {
	_, stop := w.control(t)
	defer stop()
	ctx := context.Background()
	w.pool(t, "p", "{addresses: [10.1.1.0/24]}")
	w.serve(t, "web")
	w.want(t, "web", "10.1.1.0 True")
	a, b := w.reporter(t, "n1"), w.reporter(t, "n2")
	web := w.outcome(t, "web")
	rejected := web
	rejected.NotProgrammed, rejected.NotAdvertised = "Rejected", "Rejected"
	a.ReportServices(ctx, []source.Outcome{web})
	b.ReportServices(ctx, []source.Outcome{rejected})
	w.wantReported(t, "web", "False SomeNodes: 1/2 nodes; n2: Rejected", "False SomeNodes: 1/2 nodes; n2: Rejected")
	silent := web
	silent.NotAdvertised = "ConditionsNotMet"
	b.ReportServices(ctx, []source.Outcome{silent})
	w.wantReported(t, "web", "True AllNodes: 2/2 nodes", "True AllNodes: 1/1 nodes")
	a.ReportServices(ctx, []source.Outcome{silent})
	w.wantReported(t, "web", "True AllNodes: 2/2 nodes", "False NotOnAnyNode: 0/2 nodes; n1: ConditionsNotMet; n2: ConditionsNotMet")
	a.ReportServices(ctx, []source.Outcome{web})
	b.ReportServices(ctx, []source.Outcome{web})
	version := w.wantReported(t, "web", "True AllNodes: 2/2 nodes", "True AllNodes: 2/2 nodes")
	b.RemoveServices(ctx) // it restarts
	time.Sleep(time.Second)
	w.reporter(t, "n2").ReportServices(ctx, []source.Outcome{web, {ID: service.ID{Namespace: "default", Name: "other"}}})
	time.Sleep(4 * time.Second)
	if now := w.wantReported(t, "web", "True", "True"); now != version {
		t.Error("the restart of an agent changes the Service")
	}
	b.ReportServices(ctx, nil) // a changed one
	w.wantReported(t, "web", "True AllNodes: 1/1 nodes", "True AllNodes: 1/1 nodes")
	a.RemoveServices(ctx) // it stops
	w.wantReported(t, "web", "Unknown NoNodeReports: no load balancer reports it", "Unknown NoNodeReports: no load balancer reports it")
	a.ReportServices(ctx, []source.Outcome{web})
	w.wantReported(t, "web", "True AllNodes: 1/1 nodes", "True AllNodes: 1/1 nodes")
	w.must(t, w.core.CoreV1().Nodes().Delete(ctx, "n1", metav1.DeleteOptions{})) // its agent cannot remove its report
	w.wantReported(t, "web", "Unknown", "Unknown")
	w.change(t, "web", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP })
	w.wantReported(t, "web", "", "")
	w.must(t, w.any.Resource(resources["NodeReport"]).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
}

// reportedByDedicated has two dedicated load balancers on one node report a Service, which
// other load balancers do not serve.
func reportedByDedicated(t *testing.T, w *world) {
	_, stop := w.control(t)
	defer stop()
	ctx := context.Background()
	w.pool(t, "p", "{addresses: [10.1.1.0/24]}")
	w.serve(t, "web", annotated(object.AnnotationDedicated, "true"))
	w.serve(t, "shared")
	web, shared := w.outcome(t, "web"), w.outcome(t, "shared")
	node := w.reporter(t, "n1")
	node.ReportServices(ctx, []source.Outcome{shared, web}) // before it was dedicated
	one, two := w.dedicated(t, "n1", "web-1"), w.dedicated(t, "n1", "web-2")
	one.ReportServices(ctx, []source.Outcome{web})
	idle := web
	idle.NotProgrammed, idle.NotAdvertised = "NoEndpoints", "NoEndpoints"
	two.ReportServices(ctx, []source.Outcome{idle})
	one.Renew(ctx)
	two.Renew(ctx)
	w.wantReported(t, "web", "False SomeNodes: 1/2 nodes; n1/web-2: NoEndpoints", "False SomeNodes: 1/2 nodes; n1/web-2: NoEndpoints")
	w.wantReported(t, "shared", "True AllNodes: 1/1 nodes", "True AllNodes: 1/1 nodes")
	two.RemoveServices(ctx) // scaled down
	w.wantReported(t, "web", "True AllNodes: 1/1 nodes", "True AllNodes: 1/1 nodes")

	running, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- two.Run(running, nil) }()
	eventually(t, "the node is known", func() string {
		if n, ok := two.Node(); !ok {
			return fmt.Sprint(n, two.Problems())
		}
		return ""
	})
	two.ReportServices(ctx, []source.Outcome{web})
	two.Renew(ctx)
	end()
	w.must(t, <-ended)
	w.wantReported(t, "web", "True AllNodes: 2/2 nodes", "True AllNodes: 2/2 nodes")
	report, err := w.any.Resource(resources["NodeReport"]).Get(ctx, "n1--web-2", metav1.GetOptions{})
	w.must(t, err)
	if owners := report.GetOwnerReferences(); len(owners) != 1 || owners[0].Name != "n1" {
		t.Errorf("the owners are %v", owners)
	}
	w.must(t, w.core.CoreV1().Nodes().Delete(ctx, "n1", metav1.DeleteOptions{}))
	w.wantReported(t, "web", "Unknown", "Unknown")
	one.RemoveServices(ctx)
	two.RemoveServices(ctx)
	node.RemoveServices(ctx)
}

// silentAgents kills agents: what they have reported counts as unknown until they return.
func silentAgents(t *testing.T, w *world) {
	_, stop := w.control(t)
	defer func() { stop() }()
	w.pool(t, "p", "{addresses: [10.1.1.0/24]}")
	w.must(t, w.apply("apiVersion: fairlead.io/v1alpha1\nkind: BGPPeer\nmetadata: {name: tor}\nspec: {peerAddress: 10.0.0.110}\n"))
	w.serve(t, "web")
	web := w.outcome(t, "web")
	work := func(node, pod string) {
		s := w.dedicated(t, node, pod)
		s.Report(context.Background(), map[sourcekube.Reported]sourcekube.Report{{Kind: "BGPPeer", Name: "tor"}: {Ready: true, Message: "established"}})
		s.ReportSessions(context.Background(), []advertise.Peer{{Name: "tor", Address: "10.0.0.110", State: advertise.Established, Since: time.Now(), BFD: "up"}})
		s.ReportServices(context.Background(), []source.Outcome{web})
		s.Renew(context.Background())
	}
	const established = "established up "
	work("n1", "")
	work("n2", "")
	work("n2", "web-1")
	w.wantReported(t, "web", "True AllNodes: 3/3 nodes", "True AllNodes: 3/3 nodes")
	w.wantRouting(t, "BGPPeer", "tor", "3/3 Accepted=True Accepted: ; Established=True AllNodes: 3/3 nodes; ")
	const lost = "2/3 nodes; n2: has not reported since 20"
	w.kill(t, "n2")
	w.wantReported(t, "web", "False SomeNodes: "+lost, "False SomeNodes: "+lost)
	w.wantRouting(t, "BGPPeer", "tor", "2/3 Accepted=True Accepted: ; Established=False SomeNodes: "+lost)
	w.wantSession(t, "n2--tor", "unknown  the load balancer has not reported since 20")
	w.wantSession(t, "n2--web-1--tor", established)
	w.wantSession(t, "n1--tor", established)
	work("n2", "")
	w.wantSession(t, "n2--tor", established)
	w.wantReported(t, "web", "True AllNodes: 3/3 nodes", "True AllNodes: 3/3 nodes")
	w.wantRouting(t, "BGPPeer", "tor", "3/3 ")
	w.kill(t, "n2--web-1")
	w.wantReported(t, "web", "False SomeNodes: 2/3 nodes; n2/web-1: has", "False SomeNodes: 2/3 nodes; n2/web-1: has")
	beats := w.any.Resource(resources["NodeHeartbeat"]).Namespace("fairlead")
	w.must(t, beats.Delete(context.Background(), "n2--web-1", metav1.DeleteOptions{})) // as with its Pod
	w.wantReported(t, "web", "True AllNodes: 2/2 nodes", "True AllNodes: 2/2 nodes")
	w.wantRouting(t, "BGPPeer", "tor", "2/2 ")

	w.kill(t, "n2")
	version := w.wantReported(t, "web", "False SomeNodes: 1/2 nodes; n2: has", "False SomeNodes: 1/2 nodes; n2: has")
	time.Sleep(2 * time.Second) // times in an object are whole seconds
	work("n1", "")
	stop()
	_, stop = w.control(t)
	time.Sleep(5 * time.Second)
	if now := w.wantReported(t, "web", "False", "False"); now != version {
		t.Error("another leader does not know at once that an agent is dead")
	}
	w.must(t, w.any.Resource(resources["BGPPeer"]).Delete(context.Background(), "tor", metav1.DeleteOptions{}))
	w.must(t, beats.DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	w.must(t, w.any.Resource(resources["NodeReport"]).DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	w.must(t, w.any.Resource(resources["BGPSession"]).Namespace("fairlead").DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{}))
}

// wantSession waits until a BGPSession has a state, a BFD state and an error that begin so.
func (w *world) wantSession(t *testing.T, name, want string) {
	t.Helper()
	eventually(t, "the session "+name, func() string {
		o, err := w.any.Resource(resources["BGPSession"]).Namespace("fairlead").Get(context.Background(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		var s v1alpha1.BGPSession
		w.must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &s))
		if got := s.Status.State + " " + s.Status.BFD + " " + s.Status.LastError; !strings.HasPrefix(got, want) {
			return got
		}
		return ""
	})
}

// kill makes the last heartbeat of an agent, by its name, valid for only a second.
func (w *world) kill(t *testing.T, name string) {
	t.Helper()
	_, err := w.any.Resource(resources["NodeHeartbeat"]).Namespace("fairlead").Patch(context.Background(), name, types.MergePatchType, []byte(`{"status":{"durationSeconds":1}}`), metav1.PatchOptions{})
	w.must(t, err)
}

// reporter returns the Source of a node's agent. The Node exists until the test ends.
func (w *world) reporter(t *testing.T, node string) *sourcekube.Source {
	t.Helper()
	return w.dedicated(t, node, "")
}

// dedicated returns the Source of a dedicated load balancer's agent.
func (w *world) dedicated(t *testing.T, node, pod string) *sourcekube.Source {
	t.Helper()
	ctx := context.Background()
	if _, err := w.core.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{}); err == nil {
		t.Cleanup(func() { _ = w.core.CoreV1().Nodes().Delete(ctx, node, metav1.DeleteOptions{}) })
	}
	kubeconfig, err := w.cluster.KubeconfigFor(agentUser)
	w.must(t, err)
	s, err := sourcekube.New(sourcekube.Config{Kubeconfig: kubeconfig, Node: node, Pod: pod, Log: slog.Default()})
	w.must(t, err)
	return s
}

// outcome returns the report of a Service that is programmed and advertised.
func (w *world) outcome(t *testing.T, name string) source.Outcome {
	t.Helper()
	s, err := w.core.CoreV1().Services("default").Get(context.Background(), name, metav1.GetOptions{})
	w.must(t, err)
	return source.Outcome{ID: service.ID{Namespace: "default", Name: name}, Created: s.CreationTimestamp.Time}
}

// wantReported waits until the conditions of a Service begin so, and returns its version.
func (w *world) wantReported(t *testing.T, name, programmed, advertised string) (version string) {
	t.Helper()
	eventually(t, name, func() string {
		s, err := w.core.CoreV1().Services("default").Get(context.Background(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		version = s.ResourceVersion
		for of, want := range map[string]string{controller.ConditionProgrammed: programmed, controller.ConditionAdvertised: advertised} {
			got := ""
			if c := meta.FindStatusCondition(s.Status.Conditions, of); c != nil {
				got = fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
			}
			if !strings.HasPrefix(got, want) || want == "" && got != "" {
				return fmt.Sprintf("%s is %q, want %q", of, got, want)
			}
		}
		return ""
	})
	return version
}
