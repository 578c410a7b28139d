package controller_test

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/lab/cputime"
	labkube "github.com/fairlead/fairlead/lab/kube"
)

var services = flag.Int("services", 2000, "how many Services TestVeryMany has, at most 50000")

// TestVeryMany checks that a controller that starts with very many Services, all of which
// have addresses, writes none of them.
func TestVeryMany(t *testing.T) {
	t.Parallel()
	w := newWorld(t, labkube.Options{Seed: &labkube.Seed{Services: *services, Endpoints: 1, Each: assigned}})
	w.deploy(t, "manifests/rbac.yaml")
	w.install(t)
	w.pool(t, "p", "{addresses: [10.200.0.0/16]}")
	before := w.versions(t)
	began, cpu := time.Now(), cputime.Process()
	log, _ := w.control(t)
	log.wants(t, "loaded")
	loaded := time.Since(began)
	// The last one is processed last.
	w.serve(t, "last")
	w.want(t, "last", fmt.Sprintf("%s True Assigned", lbAddr(*services)))
	t.Logf("%d Services: loaded after %s, all looked at after %s; CPU time %s", *services, loaded, time.Since(began), cputime.Process()-cpu)
	for name, version := range w.versions(t) {
		if name != "last" && before[name] != version {
			t.Fatalf("%s has been written", name)
		}
	}
	w.wantPool(t, "p", fmt.Sprintf("4=65536/%d/%d", *services+1, 65536-*services-1))
	runtime.GC()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	t.Logf("heap %d MiB", mem.HeapAlloc>>20)
}

// TestVeryManyNew checks that very many Services without an address get one each.
func TestVeryManyNew(t *testing.T) {
	t.Parallel()
	w := newWorld(t, labkube.Options{Seed: &labkube.Seed{Services: *services, Endpoints: 1, Each: func(_ int, s *corev1.Service, _ []*discoveryv1.EndpointSlice) {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
	}}})
	w.deploy(t, "manifests/rbac.yaml")
	w.install(t)
	w.pool(t, "p", "{addresses: [10.200.0.0/16]}")
	began := time.Now()
	w.control(t)
	for had, last := 0, began; had < *services; time.Sleep(time.Second) {
		owner := map[string]string{}
		all, err := w.core.CoreV1().Services("").List(context.Background(), metav1.ListOptions{})
		w.must(t, err)
		for _, s := range all.Items {
			for _, in := range s.Status.LoadBalancer.Ingress {
				owner[in.IP] = s.Name
			}
		}
		if len(owner) > had { // the speed depends on the machine
			had, last = len(owner), time.Now()
		} else if time.Since(last) > long {
			t.Fatalf("%d addresses are had, want %d", had, *services)
		}
	}
	w.wantPool(t, "p", fmt.Sprintf("4=65536/%d/%d", *services, 65536-*services))
	t.Logf("%d Services written in %s", *services, time.Since(began))
}

// assigned makes a Service one with an address from a controller.
func assigned(i int, s *corev1.Service, _ []*discoveryv1.EndpointSlice) {
	vip := corev1.LoadBalancerIPModeVIP
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: lbAddr(i), IPMode: &vip}}
	s.Status.Conditions = []metav1.Condition{{
		Type: controller.ConditionAssigned, Status: metav1.ConditionTrue, Reason: controller.ReasonAssigned,
		Message: fmt.Sprintf("it has %s of pool p", lbAddr(i)), LastTransitionTime: metav1.Unix(1_700_000_000, 0),
	}}
}

func lbAddr(i int) string { return fmt.Sprintf("10.200.%d.%d", i/256, i%256) }
