package object

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/lab/testkit/growth"
)

// TestJoinsLinearly joins a Service with ten times as many endpoints, and weights for
// addresses that are no endpoints.
func TestJoinsLinearly(t *testing.T) {
	growth.Linear(t, 300, func(size int) func() {
		weights := ""
		for i := range size {
			weights += fmt.Sprintf("%s=2,", address(1<<20+i))
		}
		s := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Annotations: map[string]string{
				AnnotationAddresses: "10.1.1.1", AnnotationWeights: weights[:len(weights)-1],
			}},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
		}
		o, faults := ReadService(s, Origin{})
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		its := make([]*Object, 0, size/100)
		for first := 0; first < size; first += 100 {
			its = append(its, sliceOf(t, first, 100))
		}
		return func() {
			j := Join(nil, o, its, nil)
			if len(j.Service.Frontends[0].Backends) != size || len(j.Problems) != size {
				t.Fatalf("%d backends, %d problems", len(j.Service.Frontends[0].Backends), len(j.Problems))
			}
		}
	})
}

func address(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{172, byte(i >> 16), byte(i >> 8), byte(i)})
}

func sliceOf(t *testing.T, first, n int) *Object {
	t.Helper()
	port := int32(8080)
	in := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("web-", first), Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: &port}},
	}
	for i := range n {
		in.Endpoints = append(in.Endpoints, discoveryv1.Endpoint{Addresses: []string{address(first + i).String()}})
	}
	o, faults := ReadSlice(in, Origin{})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return o
}
