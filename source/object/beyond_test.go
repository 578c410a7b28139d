package object_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/source/object"
)

// TestAddressesBeyondThoseGiven checks that external and cluster addresses of Services in a
// cluster count only on request, and do not affect the rest for any type of Service.
func TestAddressesBeyondThoseGiven(t *testing.T) {
	service := func(typ corev1.ServiceType, change func(*corev1.Service)) *corev1.Service {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}, Spec: corev1.ServiceSpec{
			Type: typ, Ports: []corev1.ServicePort{{Port: 80}}, ClusterIPs: []string{"10.96.0.1", "fd00::1"}, ExternalIPs: []string{"192.0.2.1"},
		}}
		change(s)
		return s
	}
	given := func(s *corev1.Service) {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.1.1.1"}}
	}
	none := func(*corev1.Service) {}
	for _, c := range []struct {
		name              string
		of                *corev1.Service
		external, cluster bool
		want              string
	}{
		{"nothing is asked for", service(corev1.ServiceTypeClusterIP, none), false, false, "not ours"},
		{"cluster addresses", service(corev1.ServiceTypeClusterIP, none), false, true, "10.96.0.1 ClusterIP, fd00::1 ClusterIP"},
		{"external ones", service(corev1.ServiceTypeNodePort, none), true, false, "192.0.2.1 ExternalIP"},
		{"all", service(corev1.ServiceTypeLoadBalancer, given), true, true, "10.1.1.1 LoadBalancerIP, 10.96.0.1 ClusterIP, 192.0.2.1 ExternalIP, fd00::1 ClusterIP"},
		{"a load balancer's alone", service(corev1.ServiceTypeLoadBalancer, given), false, false, "10.1.1.1 LoadBalancerIP"},
		{"one that is given counts as such", service(corev1.ServiceTypeLoadBalancer, func(s *corev1.Service) {
			given(s)
			s.Spec.ExternalIPs = []string{"10.1.1.1"}
		}), true, false, "10.1.1.1 LoadBalancerIP"},
		{"none is given yet", service(corev1.ServiceTypeLoadBalancer, none), true, false, "192.0.2.1 ExternalIP"},
		{"neither given nor asked for", service(corev1.ServiceTypeLoadBalancer, none), false, false, "waiting"},
		{"another's class", service(corev1.ServiceTypeLoadBalancer, func(s *corev1.Service) {
			given(s)
			s.Spec.LoadBalancerClass = new("metallb.io/lb")
		}), false, true, "10.96.0.1 ClusterIP, fd00::1 ClusterIP"},
		{"nobody of a family is let in", service(corev1.ServiceTypeLoadBalancer, func(s *corev1.Service) {
			given(s)
			s.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/8"}
		}), false, true, "10.1.1.1 LoadBalancerIP, 10.96.0.1 ClusterIP"},
		{"headless", service(corev1.ServiceTypeClusterIP, func(s *corev1.Service) { s.Spec.ClusterIPs = []string{"None"} }), false, true, "not ours"},
		{"DNS'", service(corev1.ServiceTypeExternalName, none), true, true, "not ours"},
	} {
		o, faults := object.ReadService(c.of, object.Origin{Assigned: true, Beyond: func(map[string]string) (bool, bool) { return c.external, c.cluster }})
		if len(faults) > 0 {
			t.Errorf("%s: %v", c.name, faults)
		}
		got := "not ours"
		switch {
		case o.Waiting():
			got = "waiting"
		case o.Ours():
			var words []string
			for _, f := range object.Join(nil, o, nil, nil).Service.Frontends {
				words = append(words, fmt.Sprint(f.VIP, " ", f.Kind))
			}
			got = strings.Join(words, ", ")
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
