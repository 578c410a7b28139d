package controller_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/controller"
	labkube "github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/source/object"
)

// TestWaits starts a controller before anything else exists: it logs what it waits for, and
// continues when that is available.
func TestWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, labkube.Options{})
	log, _ := w.control(t)
	log.wants(t, "no right to get leases: bind the ClusterRole fairlead-controller")
	if err := log.of.Ready(); err == nil || !strings.Contains(err.Error(), "no right to get leases") {
		t.Errorf("ready without a right to lead: %v", err)
	}
	w.deployOnly(t, "manifests/rbac.yaml", "namespace: fairlead\n") // everything except the ClusterRole
	log.wants(t, "no right to list services: bind the ClusterRole fairlead-controller")
	w.deployOnly(t, "manifests/rbac.yaml", "kind: ClusterRole\n")
	log.wants(t, "the resource addresspools does not exist: kubectl apply -f deploy/crds")
	w.serve(t, "web")
	w.install(t)
	w.want(t, "web", " False NoMatchingPool: no pool has IPv4 addresses")
	w.pool(t, "p", "{addresses: [10.1.1.0/24]}")
	w.want(t, "web", "10.1.1.0 True Assigned: it has 10.1.1.0 of pool p")
}

// TestMayNotWrite has a controller that may read but not write: it logs that, and continues
// when it may.
func TestMayNotWrite(t *testing.T) {
	t.Parallel()
	w := newWorld(t, labkube.Options{})
	w.install(t)
	w.deploy(t, "manifests/rbac.yaml")
	w.must(t, w.role(func(r *rbacv1.PolicyRule) bool { return r.Verbs[0] == "patch" }))
	log, _ := w.control(t)
	w.pool(t, "p", "{addresses: [10.1.1.0/24]}")
	w.serve(t, "web")
	log.wants(t, "no right to patch services/status: bind the ClusterRole fairlead-controller")
	log.wants(t, "no right to patch addresspools/status")
	if err := log.of.Ready(); err != nil {
		t.Errorf("not ready, though it leads: %v", err)
	}
	w.must(t, w.role(func(*rbacv1.PolicyRule) bool { return false }))
	w.want(t, "web", "10.1.1.0 True Assigned")
	w.wantPool(t, "p", "4=256/1/255")
}

// role grants the controller its permissions except some.
func (w *world) role(without func(*rbacv1.PolicyRule) bool) error {
	text, err := os.ReadFile("../deploy/manifests/rbac.yaml")
	if err != nil {
		return err
	}
	var r rbacv1.ClusterRole
	for object := range strings.SplitSeq(string(text), "\n---\n") {
		if strings.Contains(object, "\nkind: ClusterRole\n") && strings.Contains(object, "\n  name: fairlead-controller\n") {
			err = yaml.Unmarshal([]byte(object), &r)
		}
	}
	if err != nil {
		return err
	}
	r.Rules = slices.DeleteFunc(r.Rules, func(rule rbacv1.PolicyRule) bool { return without(&rule) })
	_, err = w.core.RbacV1().ClusterRoles().Update(context.Background(), &r, metav1.UpdateOptions{})
	return err
}

// TestController runs several tests on one API server. Each ends without pools and
// Services.
func TestController(t *testing.T) {
	t.Parallel()
	w := newWorld(t, labkube.Options{Flags: dualStack})
	w.deploy(t, "manifests/rbac.yaml")
	w.deploy(t, "manifests/admission.yaml")
	w.install(t)
	for _, story := range []struct {
		name string
		run  func(*testing.T, *world)
	}{
		{"assignment", assignment}, {"dual stack", bothFamilies}, {"exhaustion", exhaustion}, {"restart", restart}, {"sharing", sharing},
		{"asking", asking}, {"pools that go and come", poolsGo}, {"nodes in pools", nodesInPools}, {"class and type", classChanges}, {"whose pools", whosePools},
		{"ages", agesOf}, {"ages of many", agesOfMany}, {"two controllers", twoControllers}, {"a leader that is late", lateLeader},
		{"a leader that dies between", diesBetween}, {"writes that fail", failingWrites}, {"wrong clocks", wrongClocks},
		{"admission", admission}, {"metrics", exported}, {"routing", routing}, {"reports", reported},
		{"reports of dedicated load balancers", reportedByDedicated}, {"reports of agents that are killed", silentAgents},
		{"the API server away", serverAway},
	} {
		t.Run(story.name, func(t *testing.T) {
			defer w.clear(t)
			story.run(t, w)
		})
	}
}

func (w *world) clear(t *testing.T) {
	ctx := context.Background()
	all, err := w.core.CoreV1().Services("default").List(ctx, metav1.ListOptions{})
	w.must(t, err)
	for _, s := range all.Items {
		if s.Name != "kubernetes" {
			w.drop(t, s.Name)
		}
	}
	w.must(t, w.any.Resource(resources["AddressPool"]).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
}

func assignment(t *testing.T, w *world) {
	_, stop := w.control(t)
	defer stop()
	w.pool(t, "second", "{addresses: [10.2.1.0/24]}")
	w.pool(t, "first", "{addresses: [10.1.1.0/29], reserved: [10.1.1.0-10.1.1.1], priority: 10}")
	w.want(t, "none", "services \"none\" not found")
	w.wantPool(t, "first", "4=6/0/6 6=- True Ready")
	w.serve(t, "web")
	w.want(t, "web", "10.1.1.2 True Assigned: it has 10.1.1.2 of pool first")
	w.wantEvent(t, "web", "Assigned", "it has 10.1.1.2 of pool first")
	w.wantPool(t, "first", "4=6/1/5 6=- True Ready")
	w.drop(t, "web")
	w.wantPool(t, "first", "4=6/0/6 6=- True Ready")
	w.serve(t, "plain", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort })
	w.serve(t, "next")
	w.want(t, "next", "10.1.1.2 True")
	if got := w.stands("plain"); got != "" {
		t.Errorf("a Service of another type stands %q", got)
	}
}

// wantPool waits until a pool has this status: total, used and free of each family, then
// its condition.
func (w *world) wantPool(t *testing.T, name, want string) {
	t.Helper()
	eventually(t, "pool "+name, func() string {
		p, err := w.any.Resource(resources["AddressPool"]).Get(context.Background(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		text := ""
		for _, f := range []string{"ipv4", "ipv6"} {
			u, _, _ := unstructured.NestedMap(p.Object, "status", f)
			if u == nil {
				text += f[3:] + "=- "
			} else {
				text += fmt.Sprintf("%s=%v/%v/%v ", f[3:], u["total"], u["used"], u["free"])
			}
		}
		conditions, _, _ := unstructured.NestedSlice(p.Object, "status", "conditions")
		for _, c := range conditions {
			c := c.(map[string]any)
			text += fmt.Sprintf("%v %v: %v", c["status"], c["reason"], c["message"])
		}
		if !strings.HasPrefix(text, want) {
			return fmt.Sprintf("stands %q, want %q", text, want)
		}
		return ""
	})
}

func families(policy corev1.IPFamilyPolicy) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.IPFamilyPolicy = &policy }
}

func bothFamilies(t *testing.T, w *world) {
	_, stop := w.control(t)
	defer stop()
	w.pool(t, "four", "{addresses: [10.1.1.0/30]}")
	w.serve(t, "prefer", families(corev1.IPFamilyPolicyPreferDualStack))
	w.serve(t, "require", families(corev1.IPFamilyPolicyRequireDualStack))
	w.want(t, "prefer", "10.1.1.0 True NoMatchingPool: no pool has IPv6 addresses; it has 10.1.1.0 of pool four")
	w.want(t, "require", " False NoMatchingPool: no pool has IPv6 addresses")
	w.pool(t, "six", "{addresses: ['2001:db8::/64']}")
	// Both have waited for it; either may get the first address.
	lasts := "2001:db8::1"
	if w.wantEither(t, "prefer", "10.1.1.0,2001:db8:: True Assigned: it has 10.1.1.0 of pool four, 2001:db8:: of pool six",
		"10.1.1.0,2001:db8::1 True Assigned: it has 10.1.1.0 of pool four, 2001:db8::1 of pool six") {
		lasts = "2001:db8::"
	}
	w.want(t, "require", "10.1.1.1,"+lasts+" True Assigned")
	w.wantPool(t, "six", "4=- 6=9223372036854775807/2/9223372036854775807 True Ready")
	w.change(t, "require", func(s *corev1.Service) {
		families(corev1.IPFamilyPolicySingleStack)(s)
		s.Spec.IPFamilies, s.Spec.ClusterIPs = s.Spec.IPFamilies[:1], s.Spec.ClusterIPs[:1]
	})
	w.want(t, "require", "10.1.1.1 True Assigned: it has 10.1.1.1 of pool four")
}

func exhaustion(t *testing.T, w *world) {
	_, stop := w.control(t)
	defer stop()
	w.pool(t, "small", "{addresses: [10.1.1.7]}")
	w.serve(t, "a")
	w.want(t, "a", "10.1.1.7 True")
	w.serve(t, "b")
	w.want(t, "b", " False PoolExhausted: pool small has no IPv4 address left (1 of 1 in use)")
	w.wantEvent(t, "b", "PoolExhausted", "pool small has no IPv4 address left")
	w.drop(t, "a")
	w.want(t, "b", "10.1.1.7 True Assigned")
}

// restart checks that Services keep their addresses, however many are created while there
// is no controller, and that a restart writes none of them.
func restart(t *testing.T, w *world) {
	_, stop := w.control(t)
	w.pool(t, "p", "{addresses: [10.1.1.0/24]}")
	for i := range 10 {
		w.serve(t, fmt.Sprint("s", i))
		w.want(t, fmt.Sprint("s", i), fmt.Sprintf("10.1.1.%d True", i))
	}
	w.drop(t, "s4", "s7")
	w.wantPool(t, "p", "4=256/8/248")
	stop()
	before := w.versions(t)
	for i := range 10 {
		w.serve(t, fmt.Sprint("late", i))
	}
	_, stop = w.control(t)
	defer stop()
	w.wantUnique(t, 18)
	w.wantPool(t, "p", "4=256/18/238")
	after := w.versions(t)
	for name, version := range before {
		if after[name] != version {
			t.Errorf("%s has been written", name)
		}
	}
}

// versions returns the resource versions of all Services.
func (w *world) versions(t *testing.T) map[string]string {
	t.Helper()
	all, err := w.core.CoreV1().Services("").List(context.Background(), metav1.ListOptions{})
	w.must(t, err)
	versions := map[string]string{}
	for _, s := range all.Items {
		versions[s.Name] = s.ResourceVersion
	}
	return versions
}

func ports(numbers ...int32) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Spec.Ports = nil
		for _, n := range numbers {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", n), Port: n})
		}
	}
}

func sharing(t *testing.T, w *world) {
	_, stop := w.control(t)
	defer stop()
	w.pool(t, "p", "{addresses: [10.1.1.0/24]}")
	key := annotated(object.AnnotationAddressSharingKey, "k")
	w.serve(t, "a", key)
	w.want(t, "a", "10.1.1.0 True")
	w.serve(t, "b", key, ports(81, 82))
	w.want(t, "b", "10.1.1.0 True Assigned")
	w.serve(t, "c", key, ports(80, 83))
	w.want(t, "c", "10.1.1.1 True Assigned")
	w.wantPool(t, "p", "4=256/2/254")
	w.serve(t, "d", annotated(object.AnnotationAddresses, "10.1.1.0"), ports(90))
	w.want(t, "d", " False AddressConflict: it requests 10.1.1.0, which default/a has; Services share an address if both have the same sharing key")
	w.serve(t, "e", annotated(object.AnnotationAddresses, "10.1.1.1"), key)
	w.want(t, "e", " False AddressConflict: it requests 10.1.1.1, where default/c has TCP 80")
	w.change(t, "c", ports(83))
	w.want(t, "e", "10.1.1.1 True Assigned")
	w.serve(t, "whole", key, annotated(object.AnnotationPortRanges, "all"))
	w.want(t, "whole", "10.1.1.2 True Assigned")
	w.change(t, "b", func(s *corev1.Service) { delete(s.Annotations, object.AnnotationAddressSharingKey) })
	w.want(t, "b", "10.1.1.3 True Assigned")
}

func asking(t *testing.T, w *world) {
	_, stop := w.control(t)
	defer stop()
	w.pool(t, "auto", "{addresses: [10.1.1.0/24]}")
	w.pool(t, "manual", "{addresses: [10.1.2.0/24], autoAssign: false, avoidBuggyIPs: true}")
	w.serve(t, "by-annotation", annotated(object.AnnotationAddresses, "10.1.2.9"))
	w.serve(t, "by-field", func(s *corev1.Service) { s.Spec.LoadBalancerIP = "10.1.1.9" })
	w.serve(t, "by-pool", annotated(object.AnnotationAddressPool, "manual"))
	w.want(t, "by-annotation", "10.1.2.9 True Assigned")
	w.want(t, "by-field", "10.1.1.9 True Assigned")
	w.want(t, "by-pool", "10.1.2.1 True Assigned: it has 10.1.2.1 of pool manual")
	w.serve(t, "buggy", annotated(object.AnnotationAddresses, "10.1.2.255"))
	w.want(t, "buggy", " False NotInPool: it requests 10.1.2.255, which is reserved or excluded in pool manual")
	w.serve(t, "nowhere", annotated(object.AnnotationAddresses, "10.9.9.9"))
	w.want(t, "nowhere", " False NotInPool: it requests 10.9.9.9, which is in no pool")
	w.wantEvent(t, "nowhere", "NotInPool", "10.9.9.9")
	w.serve(t, "taken", annotated(object.AnnotationAddresses, "10.1.1.9"))
	w.want(t, "taken", " False AddressConflict: it requests 10.1.1.9, which default/by-field has")
	w.drop(t, "by-field")
	w.want(t, "taken", "10.1.1.9 True Assigned")
	// A request that cannot be fulfilled does not remove existing addresses.
	w.change(t, "taken", annotated(object.AnnotationAddresses, "10.1.2.9"))
	w.want(t, "taken", "10.1.1.9 False AddressConflict: it requests 10.1.2.9, which default/by-annotation has")
	w.change(t, "taken", annotated(object.AnnotationAddresses, "10.1.1.77"))
	w.want(t, "taken", "10.1.1.77 True Assigned")
	w.change(t, "taken", annotated(object.AnnotationPortRanges, "http=80-90, http=80-91"))
	w.want(t, "taken", "10.1.1.77 False InvalidAnnotation: metadata.annotations[fairlead.io/port-ranges]: ")
}

func poolsGo(t *testing.T, w *world) {
	_, stop := w.control(t)
	w.pool(t, "p", "{addresses: [10.1.1.0/24]}")
	w.serve(t, "web")
	w.want(t, "web", "10.1.1.0 True Assigned")
	w.dropPool(t, "p")
	const outside = "10.1.1.0 True AddressOutsidePools: it keeps 10.1.1.0, which is in no pool"
	w.want(t, "web", outside)
	w.wantEvent(t, "web", "AddressOutsidePools", "it keeps 10.1.1.0")
	stop()
	_, stop = w.control(t)
	defer stop()
	w.pool(t, "q", "{addresses: [10.1.1.0/31]}")
	w.want(t, "web", "10.1.1.0 True Assigned: it has 10.1.1.0 of pool q")
	w.pool(t, "r", "{addresses: [10.1.0.0/16]}")
	w.wantPool(t, "r", "4=- 6=- False InvalidSpec: 10.1.1.0-10.1.1.1 is of pool q, too, which was there first; take it out of one of them")
	w.wantEvent(t, "r", "InvalidSpec", "is of pool q, too")
	w.serve(t, "one")
	w.want(t, "one", "10.1.1.1 True Assigned")
	w.dropPool(t, "q")
	w.wantPool(t, "r", "4=65536/2/65534 6=- True Ready")
	w.want(t, "web", "10.1.1.0 True Assigned: it has 10.1.1.0 of pool r")
}

// serverAway checks that assignments survive an API server outage longer than a Lease.
func serverAway(t *testing.T, w *world) {
	log, stop := w.control(t, brief)
	defer stop()
	w.pool(t, "p", "{addresses: [10.1.1.0/24]}")
	w.serve(t, "a")
	w.want(t, "a", "10.1.1.0 True")
	w.must(t, w.cluster.APIServer.Stop())
	log.wants(t, "lost leadership")
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	w.must(t, w.cluster.APIServer.Start(ctx))
	w.serve(t, "b")
	w.want(t, "b", "10.1.1.1 True")
	w.want(t, "a", "10.1.1.0 True")
}

func class(name string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.LoadBalancerClass = &name }
}

func classChanges(t *testing.T, w *world) {
	_, stop := w.control(t)
	w.pool(t, "p", "{addresses: [10.1.1.0/24]}")
	w.serve(t, "foreign", class("example.com/other"))
	w.serve(t, "ours", class(object.LoadBalancerClass))
	w.want(t, "ours", "10.1.1.0 True")
	w.change(t, "ours", func(s *corev1.Service) {
		s.Spec.Type, s.Spec.LoadBalancerClass, s.Spec.AllocateLoadBalancerNodePorts = corev1.ServiceTypeClusterIP, nil, nil
	})
	w.wantPool(t, "p", "4=256/0/256")
	eventually(t, "ours", func() string { return w.stands("ours") })
	w.change(t, "ours", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeLoadBalancer; class("example.com/other")(s) })
	w.serve(t, "next")
	w.want(t, "next", "10.1.1.0 True")
	for _, name := range []string{"ours", "foreign"} {
		if got := w.stands(name); got != "" {
			t.Errorf("%s, of another class, stands %q", name, got)
		}
	}
	stop()
	_, stop = w.control(t, func(c *controller.Config) { c.RequireClass = true })
	defer stop()
	eventually(t, "next, which has no class", func() string { return w.stands("next") })
	w.wantPool(t, "p", "4=256/0/256")
	w.serve(t, "classed", class(object.LoadBalancerClass))
	w.want(t, "classed", "10.1.1.0 True")
}

func whosePools(t *testing.T, w *world) {
	_, stop := w.control(t)
	defer stop()
	w.pool(t, "others", "{addresses: [10.1.1.0/24], namespaces: [others]}")
	w.pool(t, "gold", "{addresses: [10.1.2.0/24], serviceSelector: {matchLabels: {tier: gold}}, priority: 1}")
	w.pool(t, "by-label", "{addresses: [10.1.3.0/24], namespaceSelector: {matchLabels: {team: a}}}")
	w.serve(t, "web")
	w.want(t, "web", " False NoMatchingPool: no pool that it may use has IPv4 addresses: pool gold is for Services with labels tier=gold; "+
		"by-label is not for namespace default; others is not for namespace default")
	w.label(t, "team", "a")
	w.want(t, "web", "10.1.3.0 True Assigned")
	w.label(t, "team", "b")
	w.want(t, "web", "10.1.3.0 True PoolNotAllowed: it keeps 10.1.3.0 of pool by-label, which is not for namespace default")
	w.serve(t, "golden", func(s *corev1.Service) { s.Labels = map[string]string{"tier": "gold"} })
	w.want(t, "golden", "10.1.2.0 True Assigned")
}

// label labels the namespace default.
func (w *world) label(t *testing.T, key, value string) {
	t.Helper()
	n, err := w.core.CoreV1().Namespaces().Get(context.Background(), "default", metav1.GetOptions{})
	w.must(t, err)
	n.Labels[key] = value
	_, err = w.core.CoreV1().Namespaces().Update(context.Background(), n, metav1.UpdateOptions{})
	w.must(t, err)
}
