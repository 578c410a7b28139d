package kube

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	labkube "github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/source/object"
)

// pod creates a Pod, or changes its network status; empty for none.
func (w world) pod(name, status string) {
	w.t.Helper()
	all := w.api.CoreV1().Pods("default")
	p, err := all.Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		p, err = all.Create(context.Background(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
		}, metav1.CreateOptions{})
		must(w.t, err)
	}
	p.Annotations = map[string]string{object.AnnotationNetworkStatus: status}
	if status == "" {
		p.Annotations = nil
	}
	_, err = all.Update(context.Background(), p, metav1.UpdateOptions{})
	must(w.t, err)
}

func (w world) deletePod(name string) {
	w.t.Helper()
	must(w.t, w.api.CoreV1().Pods("default").Delete(context.Background(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
}

// follows waits until the Pods of this many namespaces are followed.
func (f *follower) follows(namespaces int) {
	f.t.Helper()
	f.await(func() error {
		f.source.mu.Lock()
		defer f.source.mu.Unlock()
		if n := len(f.source.pods.stores); n != namespaces {
			return fmt.Errorf("Pods of %d namespaces are followed", n)
		}
		return nil
	})
}

// testNetworks has Services whose backends are on secondary networks. Pods are followed
// only while there is such a Service, and only in its namespace.
func testNetworks(t *testing.T, c *labkube.Cluster, w world) {
	status := func(network, addr string) string {
		return fmt.Sprintf(`[{"name": "cbr0", "ips": ["10.200.0.1"], "default": true}, {"name": %q, "interface": "net1", "ips": [%q]}]`, network, addr)
	}
	w.pod("a", status("default/science", "172.20.0.1"))
	w.pod("b", status("default/science", "172.20.0.2"))
	w.pod("c", "")
	s := sliceOf("web-1", "web", "10.200.0.1", "10.200.0.2", "10.200.0.3")
	for i, name := range []string{"a", "b", "c"} {
		s.Endpoints[i].TargetRef = &corev1.ObjectReference{Kind: object.KindPod, Name: name}
	}
	w.slice(s)
	w.service("web", "", nil)
	w.balance("web", "192.0.2.1")
	f := newFollower(t, c.Config, Config{}, true)
	f.awaitBalanced("default/web: TCP 192.0.2.1:80 -> 10.200.0.1:8080*1 10.200.0.2:8080*1 10.200.0.3:8080*1")
	f.follows(0)

	annotate := func(network string) {
		w.editService("web", func(s *corev1.Service) {
			s.Annotations = map[string]string{object.AnnotationNetwork: network}
			if network == "" {
				s.Annotations = nil
			}
		})
	}
	annotate("science")
	const both = "default/web: TCP 192.0.2.1:80 -> 172.20.0.1:8080*1 172.20.0.2:8080*1"
	f.awaitBalanced(both)
	f.follows(1)
	f.awaitProblem(true, "Pod default/c is not there, or has no annotation")

	// A new follower has the backends in its first snapshot.
	late := newFollower(t, c.Config, Config{}, true)
	late.await(func() error {
		if late.first == nil {
			return errors.New("nothing published")
		}
		return nil
	})
	if got := balanced(late.first); got != both {
		t.Errorf("the first snapshot is %q", got)
	}

	// Pods that are created, that are elsewhere, that are invalid, and that are deleted.
	w.pod("c", status("science", "172.20.0.3"))
	f.awaitBalanced(both + " 172.20.0.3:8080*1")
	f.awaitProblem(false, "Service default/web")
	w.pod("c", status("other/science", "172.21.0.3"))
	f.awaitBalanced(both)
	f.awaitProblem(true, `Pod default/c is not on network "science"; it is on "cbr0", "other/science"`)
	w.pod("b", "{")
	f.awaitProblem(true, "Pod default/b: metadata.annotations[k8s.v1.cni.cncf.io/network-status]: is no list of networks in JSON")
	f.awaitBalanced(both)
	w.deletePod("b")
	f.awaitBalanced("default/web: TCP 192.0.2.1:80 -> 172.20.0.1:8080*1")
	f.awaitProblem(false, "Pod default/b:")

	annotate("")
	f.awaitBalanced("default/web: TCP 192.0.2.1:80 -> 10.200.0.1:8080*1 10.200.0.2:8080*1 10.200.0.3:8080*1")
	f.awaitProblem(false, "Pod default/c")
	f.follows(0)
	w.deleteService("web")
	w.deleteSlice("web-1")
	w.deletePod("a")
	w.deletePod("c")
}
