package controller_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/api/v1alpha1"
	labkube "github.com/fairlead/fairlead/lab/kube"
	sourcekube "github.com/fairlead/fairlead/source/kube"
)

// routing has the agents of two nodes report on a BGPPeer and an Advertisement.
func routing(t *testing.T, w *world) {
	_, stop := w.control(t)
	defer stop()
	ctx := context.Background()
	w.must(t, w.apply("apiVersion: fairlead.io/v1alpha1\nkind: BGPPeer\nmetadata: {name: tor}\nspec: {peerAddress: 10.0.0.110}\n---\n"+
		"apiVersion: fairlead.io/v1alpha1\nkind: Advertisement\nmetadata: {name: all}\nspec: {}\n"))
	w.wantRouting(t, "BGPPeer", "tor", "0/0 Accepted=True Accepted: ; Established=Unknown NoNodeReports: no load balancer reports it; ")
	kubeconfig, err := w.cluster.KubeconfigFor(agentUser)
	w.must(t, err)
	dedicated := func(node, pod string) *sourcekube.Source {
		s, err := sourcekube.New(sourcekube.Config{Kubeconfig: kubeconfig, Node: node, Pod: pod, Log: slog.Default()})
		w.must(t, err)
		return s
	}
	agent := func(node string) *sourcekube.Source {
		_, err := w.core.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{})
		w.must(t, err)
		t.Cleanup(func() { _ = w.core.CoreV1().Nodes().Delete(ctx, node, metav1.DeleteOptions{}) })
		return dedicated(node, "")
	}
	tor, all := sourcekube.Reported{Kind: "BGPPeer", Name: "tor"}, sourcekube.Reported{Kind: "Advertisement", Name: "all"}
	up, down := sourcekube.Report{Ready: true, Message: "established"}, sourcekube.Report{Message: "active: connection refused"}
	a, b := agent("n1"), agent("n2")
	a.Report(ctx, map[sourcekube.Reported]sourcekube.Report{tor: up, all: {Ready: true, Message: "2 of 2 prefixes are advertised"}})
	b.Report(ctx, map[sourcekube.Reported]sourcekube.Report{tor: down})
	w.wantRouting(t, "BGPPeer", "tor", "1/2 Accepted=True Accepted: ; Established=False SomeNodes: 1/2 nodes; n2: active: connection refused; ")
	w.wantRouting(t, "Advertisement", "all", "1/1 Accepted=True Accepted: ; Advertised=True AllNodes: 1/1 nodes; ")
	web := dedicated("n2", "web-1")
	web.Report(ctx, map[sourcekube.Reported]sourcekube.Report{tor: {Message: "idle"}})
	web.Renew(ctx)
	w.wantRouting(t, "BGPPeer", "tor", "1/3 Accepted=True Accepted: ; Established=False SomeNodes: 1/3 nodes; n2: active: connection refused; n2/web-1: idle; ")
	web.Report(ctx, nil)
	web.RemoveServices(ctx)
	b.Report(ctx, map[sourcekube.Reported]sourcekube.Report{tor: up})
	version := w.wantRouting(t, "BGPPeer", "tor", "2/2 Accepted=True Accepted: ; Established=True AllNodes: 2/2 nodes; ")
	b.Report(ctx, map[sourcekube.Reported]sourcekube.Report{tor: up})
	a.Report(ctx, map[sourcekube.Reported]sourcekube.Report{tor: up})
	w.wantRouting(t, "Advertisement", "all", "0/0 Accepted=True Accepted: ; Advertised=Unknown NoNodeReports: no load balancer reports it; ")
	if now := w.wantRouting(t, "BGPPeer", "tor", "2/2 "); now != version {
		t.Error("what has not changed is written again")
	}
	b.Report(ctx, nil) // it stops
	w.wantRouting(t, "BGPPeer", "tor", "1/1 ")
	w.must(t, w.core.CoreV1().Nodes().Delete(ctx, "n1", metav1.DeleteOptions{})) // its agent cannot remove its entry
	w.wantRouting(t, "BGPPeer", "tor", "0/0 ")
	w.must(t, w.any.Resource(resources["BGPPeer"]).Delete(ctx, "tor", metav1.DeleteOptions{}))
	w.must(t, w.any.Resource(resources["Advertisement"]).Delete(ctx, "all", metav1.DeleteOptions{}))
}

// TestManagedSessions has Kubernetes delete the BGPSessions and the NodeHeartbeat of a load
// balancer with its Pod or Node: its agent was killed.
func TestManagedSessions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, labkube.Options{})
	w.deploy(t, "manifests/rbac.yaml")
	w.install(t)
	w.manage(t, "garbage-collector-controller")
	ctx := context.Background()
	node, err := w.core.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{})
	w.must(t, err)
	_, err = w.core.CoreV1().Pods("fairlead").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-1"},
		Spec:       corev1.PodSpec{NodeName: node.Name, ServiceAccountName: "fairlead-agent", Containers: []corev1.Container{{Name: "agent", Image: "fairlead"}}},
	}, metav1.CreateOptions{})
	w.must(t, err)
	kubeconfig, err := w.cluster.KubeconfigFor(agentUser)
	w.must(t, err)
	running, stop := context.WithCancel(ctx)
	defer stop()
	var ended errgroup.Group
	for _, pod := range []string{"", "web-1"} {
		s, err := sourcekube.New(sourcekube.Config{Kubeconfig: kubeconfig, Node: node.Name, Pod: pod, Log: slog.Default()})
		w.must(t, err)
		ended.Go(func() error { return s.Run(running, nil) })
		eventually(t, "the Node is known", func() string {
			if _, ok := s.Node(); !ok {
				return "it is not"
			}
			return ""
		})
		s.ReportSessions(ctx, []advertise.Peer{{Name: "tor", Address: "10.0.0.110", State: advertise.Established, Since: time.Now()}})
		s.Renew(ctx)
	}
	stop()
	w.must(t, ended.Wait())
	w.wantOwn(t, "BGPSession", "n1--tor n1--web-1--tor")
	w.wantOwn(t, "NodeHeartbeat", "n1 n1--web-1")
	w.must(t, w.core.CoreV1().Pods("fairlead").Delete(ctx, "web-1", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	w.wantOwn(t, "BGPSession", "n1--tor")
	w.wantOwn(t, "NodeHeartbeat", "n1")
	w.must(t, w.core.CoreV1().Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{}))
	w.wantOwn(t, "BGPSession", "")
	w.wantOwn(t, "NodeHeartbeat", "")
}

// wantOwn waits until these objects of load balancers exist.
func (w *world) wantOwn(t *testing.T, kind, want string) {
	t.Helper()
	eventually(t, kind, func() string {
		all, err := w.any.Resource(resources[kind]).List(context.Background(), metav1.ListOptions{})
		w.must(t, err)
		var names []string
		for _, o := range all.Items {
			names = append(names, o.GetName())
		}
		if got := strings.Join(names, " "); got != want {
			return fmt.Sprintf("are %q, want %q", got, want)
		}
		return ""
	})
}

// wantRouting waits until the status of an object begins so, and returns the object's
// version.
func (w *world) wantRouting(t *testing.T, kind, name, want string) (version string) {
	t.Helper()
	eventually(t, kind+" "+name, func() string {
		o, err := w.any.Resource(resources[kind]).Get(context.Background(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		var of struct {
			Status v1alpha1.RoutingStatus `json:"status"`
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &of); err != nil {
			return err.Error()
		}
		version = o.GetResourceVersion()
		got := of.Status.Summary + " "
		for _, c := range of.Status.Conditions {
			got += fmt.Sprintf("%s=%s %s: %s; ", c.Type, c.Status, c.Reason, c.Message)
		}
		if len(got) < len(want) || got[:len(want)] != want {
			return fmt.Sprintf("stands %q, want %q", got, want)
		}
		return ""
	})
	return version
}
