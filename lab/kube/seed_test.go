package kube_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/lab/testkit"
)

func TestSeed(t *testing.T) {
	const services, endpoints, fewer = 120, 250, 3
	c := kube.Start(t, kube.Options{Seed: &kube.Seed{Services: services, Endpoints: endpoints}})
	api := clientOf(t, c.Config)
	all, err := api.CoreV1().Services("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(all.Items); n != services+1 { // and the API's own
		t.Errorf("%d services, want %d", n, services+1)
	}
	slices, err := api.DiscoveryV1().EndpointSlices("ns-7").List(t.Context(), metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=svc-107"})
	if err != nil {
		t.Fatal(err)
	}
	var sizes []int
	addresses := map[string]bool{}
	for _, s := range slices.Items {
		sizes = append(sizes, len(s.Endpoints))
		for _, e := range s.Endpoints {
			addresses[e.Addresses[0]] = true
		}
	}
	if !cmp.Equal(sizes, []int{100, 100, 50}) || len(addresses) != endpoints || !addresses[kube.EndpointAddr(107*endpoints+endpoints-1).String()] {
		t.Errorf("slices of %v endpoints, %d addresses", sizes, len(addresses))
	}

	// While the server runs: the second time, objects with the same names are changed.
	err = c.Seed(t.Context(), kube.Seed{Services: 1, Endpoints: fewer, Each: func(_ int, s *corev1.Service, _ []*discoveryv1.EndpointSlice) {
		s.Labels = map[string]string{"seeded": "again"}
	}})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, time.Minute, func() error {
		s, err := api.CoreV1().Services("ns-0").List(t.Context(), metav1.ListOptions{LabelSelector: "seeded=again", ResourceVersion: "0"})
		if err == nil && len(s.Items) != 1 {
			err = fmt.Errorf("the API server does not have it yet: %d services", len(s.Items))
		}
		return err
	})
}

// TestSeedIsAsTheServerStores compares seeded objects with those that the API creates.
func TestSeedIsAsTheServerStores(t *testing.T) {
	c := kube.Start(t, kube.Options{Seed: &kube.Seed{Services: 1, Endpoints: 1}})
	api := clientOf(t, c.Config)
	get := metav1.GetOptions{}

	seeded, err := api.CoreV1().Services("ns-0").Get(t.Context(), "svc-0", get)
	if err != nil {
		t.Fatal(err)
	}
	made := createService(t, api, "web")
	seededIP, err := api.NetworkingV1().IPAddresses().Get(t.Context(), seeded.Spec.ClusterIP, get)
	if err != nil {
		t.Fatal(err)
	}
	madeIP, err := api.NetworkingV1().IPAddresses().Get(t.Context(), made.Spec.ClusterIP, get)
	if err != nil {
		t.Fatal(err)
	}
	slice, err := api.DiscoveryV1().EndpointSlices("ns-0").Get(t.Context(), "svc-0-0", get)
	if err != nil {
		t.Fatal(err)
	}
	madeSlice := slice.DeepCopy()
	madeSlice.ObjectMeta = metav1.ObjectMeta{Name: "made", Namespace: "default", Labels: slice.Labels}
	if madeSlice, err = api.DiscoveryV1().EndpointSlices("default").Create(t.Context(), madeSlice, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	parent := func(ip *networkingv1.IPAddress) { ip.Spec.ParentRef.Namespace, ip.Spec.ParentRef.Name = "", "" }
	parent(seededIP)
	parent(madeIP)
	made.Spec.ClusterIP, made.Spec.ClusterIPs = seeded.Spec.ClusterIP, seeded.Spec.ClusterIPs
	for _, pair := range [][2]any{
		{seeded.Spec, made.Spec}, {seededIP.Spec, madeIP.Spec}, {seededIP.Labels, madeIP.Labels}, {slice.Endpoints, madeSlice.Endpoints},
		{slice.Ports, madeSlice.Ports}, {slice.Generation, madeSlice.Generation},
	} {
		if diff := cmp.Diff(pair[0], pair[1]); diff != "" {
			t.Errorf("seeded (-) differs from created (+):\n%s", diff)
		}
	}

	// The seeded address is allocated, and becomes free with its service.
	made.ObjectMeta = metav1.ObjectMeta{Name: "taker"}
	if _, err := services(api).Create(t.Context(), made, metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), "already allocated") {
		t.Errorf("a second service with a seeded address: %v", err)
	}
	if err := api.CoreV1().Services("ns-0").Delete(t.Context(), "svc-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := services(api).Create(t.Context(), made, metav1.CreateOptions{}); err != nil {
		t.Errorf("the address of a deleted service: %v", err)
	}
}

func TestSeedReportsFailure(t *testing.T) {
	c := kube.Start(t, kube.Options{})
	if err := c.Etcd.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := c.Seed(t.Context(), kube.Seed{Services: 1}); err == nil || !strings.Contains(err.Error(), "etcd") {
		t.Errorf("without etcd: %v", err)
	}
}

// BenchmarkSeed measures what a big cluster costs: seconds to seed it, seconds until a
// server that starts with it is ready, and that server's memory.
func BenchmarkSeed(b *testing.B) {
	for _, size := range []kube.Seed{{Services: 50_000, Endpoints: 3}, {Services: 5_000, Endpoints: 50}} {
		b.Run(fmt.Sprintf("%dx%d", size.Services, size.Endpoints), func(b *testing.B) {
			for b.Loop() {
				began := time.Now()
				empty := kube.Start(b, kube.Options{})
				b.ReportMetric(time.Since(began).Seconds(), "start-s")
				if err := empty.APIServer.Stop(); err != nil {
					b.Fatal(err)
				}
				began = time.Now()
				if err := empty.Seed(b.Context(), size); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(time.Since(began).Seconds(), "seed-s")
				began = time.Now()
				if err := empty.APIServer.Start(b.Context()); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(time.Since(began).Seconds(), "ready-s")
				b.ReportMetric(residentMiB(b, empty.APIServer), "apiserver-MiB")
				b.ReportMetric(residentMiB(b, empty.Etcd), "etcd-MiB")
			}
		})
	}
}

func residentMiB(b *testing.B, p *kube.Program) float64 {
	pid, err := p.PID()
	if err != nil {
		b.Fatal(err)
	}
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		b.Fatal(err)
	}
	var size, resident int
	if _, err := fmt.Sscan(string(statm), &size, &resident); err != nil {
		b.Fatal(err)
	}
	return float64(resident) * float64(os.Getpagesize()) / (1 << 20)
}
