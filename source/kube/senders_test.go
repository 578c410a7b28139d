package kube

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/fairlead/fairlead/core/service"
	labkube "github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/source"
	"github.com/fairlead/fairlead/source/object"
)

// awaitSenders waits until a backend node accepts packets from exactly these.
func (f *follower) awaitSenders(want string) {
	f.t.Helper()
	f.await(func() error {
		if f.snapshot == nil {
			return errors.New("nothing published")
		}
		if got := fmt.Sprint(f.snapshot.Senders); got != want {
			return fmt.Errorf("senders %s, want %s", got, want)
		}
		return nil
	})
}

// testSenders has a backend node find the load balancers of several Services by a label,
// and follow changes. They are known in the first snapshot.
func testSenders(t *testing.T, c *labkube.Cluster, w world) {
	const label = "fairlead.io/balancers"
	balancers := func(name, of string, addrs ...string) *discoveryv1.EndpointSlice {
		s := sliceOf(name, of, addrs...)
		s.Labels[corev1.IsHeadlessService], s.Labels[label] = "", "true"
		return s
	}
	own := balancers("own-1", "own", "10.200.1.1")
	own.Labels[object.LabelNetwork] = "routers"
	own.Endpoints[0].TargetRef = &corev1.ObjectReference{Kind: object.KindPod, Name: "own-a"}
	w.pod("own-a", `[{"name": "default/routers", "ips": ["172.20.0.1"]}]`)
	w.slice(balancers("shared-1", "shared", "10.200.0.1", "10.200.0.2"))
	w.slice(own)
	others := balancers("others-1", "others", "10.200.9.9")
	delete(others.Labels, label)
	w.slice(others)

	by := []source.Selector{{Namespace: "default", Label: label, Value: "true"}}
	f := newFollower(t, c.Config, Config{AcceptFrom: by, Balancers: service.ID{Namespace: "default", Name: "own"}}, true)
	f.awaitSenders("[10.200.0.1 10.200.0.2 172.20.0.1]")
	if first := fmt.Sprint(f.first.Senders); first != "[10.200.0.1 10.200.0.2 172.20.0.1]" || fmt.Sprint(f.first.Balancers) != "[172.20.0.1]" {
		t.Errorf("the first snapshot has the senders %s, and the load balancers %v", first, f.first.Balancers)
	}
	w.slice(balancers("web-1", "web", "10.200.2.1"))
	f.awaitSenders("[10.200.0.1 10.200.0.2 10.200.2.1 172.20.0.1]")
	w.editSlice("shared-1", func(s *discoveryv1.EndpointSlice) { s.Endpoints = s.Endpoints[:1] })
	f.awaitSenders("[10.200.0.1 10.200.2.1 172.20.0.1]")
	w.pod("own-a", `[{"name": "default/routers", "ips": ["172.20.0.9"]}]`)
	f.awaitSenders("[10.200.0.1 10.200.2.1 172.20.0.9]")
	w.pod("own-a", "")
	f.awaitSenders("[10.200.0.1 10.200.2.1]")
	f.awaitProblem(true, `the load balancer 10.200.1.1 has no address on network "routers"`)
	w.deleteSlice("own-1")
	f.awaitProblem(false, "the load balancer 10.200.1.1")
	w.editSlice("web-1", func(s *discoveryv1.EndpointSlice) { delete(s.Labels, label) })
	f.awaitSenders("[10.200.0.1]")
	w.deleteSlice("shared-1")
	f.awaitSenders("[]")
	f.awaitProblem(true, "no EndpointSlice of default/fairlead.io/balancers=true has an endpoint: this node drops")

	named := newFollower(t, c.Config, Config{AcceptFrom: []source.Selector{{Namespace: "default", Label: source.LabelServiceName, Value: "others"}}}, true)
	named.awaitSenders("[10.200.9.9]")
	none := newFollower(t, c.Config, Config{}, true)
	none.awaitSenders("[]")
	if none.snapshot.Senders != nil {
		t.Error("without a selector nobody is known")
	}
	for _, name := range []string{"web-1", "others-1"} {
		w.deleteSlice(name)
	}
	w.deletePod("own-a")
}
