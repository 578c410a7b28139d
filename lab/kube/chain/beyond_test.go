package chain

import (
	"fmt"
	"net/netip"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// outside are the external addresses that may be used; a Service cannot take others.
const outside = `
apiVersion: fairlead.io/v1alpha1
kind: AddressPool
metadata: {name: outside}
spec: {addresses: [203.0.113.0/28], autoAssign: false}
---
apiVersion: fairlead.io/v1alpha1
kind: Advertisement
metadata: {name: external}
spec: {addresses: [ExternalIP], pools: [outside]}
`

// inside advertises cluster addresses of Services with a label.
const inside = `
apiVersion: fairlead.io/v1alpha1
kind: Advertisement
metadata: {name: inside}
spec: {addresses: [ClusterIP], serviceSelector: {matchLabels: {reach: datacenter}}}
`

// beyond reaches Services from behind the router by the external and cluster addresses
// that Announcements select.
func (w *world) beyond(t *testing.T) {
	const chosen, taken = "203.0.113.7", "203.0.113.77"
	for name, labels := range map[string]string{"inner": "{reach: datacenter}", "other": "{}"} {
		external := map[string]string{"inner": chosen + ", " + taken}[name]
		must(t, w.Apply(t.Context(), `
apiVersion: v1
kind: Service
metadata: {name: `+name+`, labels: `+labels+`, annotations: {fairlead.io/health-check-interval: 200ms, fairlead.io/health-check-timeout: 200ms}}
spec: {type: ClusterIP, externalIPs: [`+external+`], ports: [{name: http, port: 80, targetPort: `+fmt.Sprint(serverPort)+`}]}
`))
	}
	w.endpoints(t, "inner", "s1", "s2")
	w.endpoints(t, "other", "s1")
	external, refused := netip.MustParseAddr(chosen), netip.MustParseAddr(taken)
	cluster, other := w.clusterIP(t, "inner"), w.clusterIP(t, "other")
	plain := w.serving(t, "plain", "s2")

	must(t, w.Apply(t.Context(), outside))
	w.routed(t, external, "n1", "n2")
	w.answered(t, external, "s1", "s2")
	w.routed(t, plain) // no Advertisement is for it any more
	must(t, w.Apply(t.Context(), inside))
	w.routed(t, cluster, "n1", "n2")
	w.answered(t, cluster, "s1", "s2")
	must(t, w.Apply(t.Context(), `{apiVersion: fairlead.io/v1alpha1, kind: Advertisement, metadata: {name: given}, spec: {addresses: [LoadBalancerIP]}}`))
	w.routed(t, plain, "n1", "n2")
	for _, by := range []string{"n1", "n2"} { // and each load balancer forwards
		w.by(t, external, by, func() { w.answered(t, external, "s1", "s2") })
		w.by(t, cluster, by, func() { w.answered(t, cluster, "s1", "s2") })
	}
	w.endpoints(t, "inner", "s2")
	w.answered(t, external, "s2")
	w.answered(t, cluster, "s2")
	w.routed(t, refused)
	w.routed(t, other)

	w.remove(t, "advertisements", "external")
	w.routed(t, external)
	w.routed(t, cluster, "n1", "n2")
	w.answered(t, cluster, "s2")
	w.remove(t, "advertisements", "inside")
	w.routed(t, cluster)
	w.remove(t, "advertisements", "given")
	w.routed(t, plain, "n1", "n2")
	for _, name := range []string{"inner", "other", "plain"} {
		w.drop(t, name)
	}
	w.remove(t, "addresspools", "outside")
	w.routed(t, plain)
}

// clusterIP returns the cluster address of a Service.
func (w *world) clusterIP(t *testing.T, name string) netip.Addr {
	t.Helper()
	s, err := w.api.CoreV1().Services("default").Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	a, err := netip.ParseAddr(s.Spec.ClusterIP)
	must(t, err)
	return a
}

// remove deletes one of Fairlead's own objects.
func (w *world) remove(t *testing.T, resource, name string) {
	t.Helper()
	must(t, w.api.CoreV1().RESTClient().Delete().AbsPath("/apis/fairlead.io/v1alpha1", resource, name).Do(t.Context()).Error())
}
