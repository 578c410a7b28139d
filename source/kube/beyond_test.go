package kube

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/source"
	"github.com/fairlead/fairlead/source/crd"
)

// TestAnnouncedBeyond adds and removes cluster and external addresses with the Advertisement
// that requests them, and checks that a new agent starts with them.
func TestAnnouncedBeyond(t *testing.T) {
	t.Parallel()
	r, c := newRouted(t)
	r.deploy("crds/*.yaml")
	r.node("node-a", func(*corev1.Node) {})
	r.service("inner", "10.96.0.51", func(s *corev1.Service) {
		s.Labels, s.Spec.ExternalIPs = map[string]string{"tier": "gold"}, []string{"192.0.2.1"}
	})
	r.service("other", "10.96.0.52", func(*corev1.Service) {})
	r.service("given", "10.96.0.53", func(s *corev1.Service) {
		s.Spec.Type, s.Spec.AllocateLoadBalancerNodePorts = corev1.ServiceTypeLoadBalancer, new(false)
	})
	r.editService("given", func(s *corev1.Service) {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.1.1.1"}}
	})
	words := func(s *source.Snapshot) string {
		var all []string
		for _, one := range s.Services {
			for _, f := range one.Frontends {
				all = append(all, fmt.Sprint(one.ID.Name, " ", f.VIP))
			}
		}
		return strings.Join(all, ", ")
	}
	await := func(want string) {
		t.Helper()
		r.follower.await(func() error {
			if r.follower.snapshot == nil || words(r.follower.snapshot) != want {
				return fmt.Errorf("it is not %s: %+v", want, r.follower.snapshot)
			}
			return nil
		})
	}
	none := Config{OnPeers: func([]crd.Peer) []problem.Problem { return nil }}
	r.follower = newFollower(t, c.Config, none, true)
	await("given 10.1.1.1")
	r.awaitDefined()
	r.own(kindAdvertisement, "inner", `{addresses: [ClusterIP, ExternalIP], serviceSelector: {matchLabels: {tier: gold}}, nodeSelector: {matchLabels: {rack: "7"}}}`)
	const both = "given 10.1.1.1, inner 10.96.0.51, inner 192.0.2.1"
	await(both)
	r.patch(kindAdvertisement, "inner", `{"spec": {"addresses": ["ExternalIP"]}}`)
	await("given 10.1.1.1, inner 192.0.2.1")
	r.editService("inner", func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.9"} })
	await("given 10.1.1.1, inner 192.0.2.9")
	r.patch(kindAdvertisement, "inner", `{"spec": {"addresses": ["LoadBalancerIP", "ClusterIP"], "serviceSelector": null}}`)
	await("given 10.1.1.1, given 10.96.0.53, inner 10.96.0.51, kubernetes 10.96.0.1, other 10.96.0.52")

	// An agent without a balancer role follows them too, and its first snapshot is
	// complete.
	first := r.follower
	r.follower = newFollower(t, c.Config, Config{Advertisements: true}, true)
	await("given 10.1.1.1, given 10.96.0.53, inner 10.96.0.51, kubernetes 10.96.0.1, other 10.96.0.52")
	if got := words(r.follower.first); !strings.Contains(got, "inner 10.96.0.51") {
		t.Errorf("it began with %s", got)
	}
	r.follower = first
	r.drop(kindAdvertisement, "inner")
	await("given 10.1.1.1")
}
