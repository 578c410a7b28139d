package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/core/problem"
	labkube "github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/source/crd"
)

// agentUser has the permissions of deploy/manifests/rbac.yaml.
const agentUser = "system:serviceaccount:fairlead:fairlead-agent"

// kinds are the kinds of objects that these tests create.
var kinds = map[string]schema.GroupVersionResource{
	"CustomResourceDefinition": {Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
	"ClusterRole":              {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	"ClusterRoleBinding":       {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
	"Role":                     {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
	"RoleBinding":              {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
	"ServiceAccount":           {Version: "v1", Resource: "serviceaccounts"},
	"Namespace":                {Version: "v1", Resource: "namespaces"},
	kindPool:                   {Group: "fairlead.io", Version: "v1alpha1", Resource: addressPools},
	kindPeer:                   {Group: "fairlead.io", Version: "v1alpha1", Resource: bgpPeers},
	kindAdvertisement:          {Group: "fairlead.io", Version: "v1alpha1", Resource: advertisements},
	"BGPSession":               {Group: "fairlead.io", Version: "v1alpha1", Resource: bgpSessions},
}

// routed is a cluster with Fairlead's resources, and a follower.
type routed struct {
	world
	any      dynamic.Interface
	follower *follower

	mu    sync.Mutex
	peers []crd.Peer // last delivered
	calls int
}

func newRouted(t *testing.T) (*routed, *labkube.Cluster) {
	c := labkube.Start(t, labkube.Options{})
	plain := rest.CopyConfig(c.Config)
	plain.ContentType, plain.AcceptContentTypes = "", ""
	client, err := dynamic.NewForConfig(plain)
	must(t, err)
	return &routed{world: world{t, clientFor(t, c.Config)}, any: client}, c
}

// apply creates the objects of a text.
func (r *routed) apply(text string) {
	r.t.Helper()
	dec := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		var o unstructured.Unstructured
		err := dec.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return
		}
		must(r.t, err)
		if len(o.Object) == 0 {
			continue
		}
		to := dynamic.ResourceInterface(r.any.Resource(kinds[o.GetKind()]))
		if o.GetNamespace() != "" {
			to = r.any.Resource(kinds[o.GetKind()]).Namespace(o.GetNamespace())
		}
		_, err = to.Create(context.Background(), &o, metav1.CreateOptions{})
		must(r.t, err)
	}
}

func (r *routed) deploy(pattern string) {
	r.t.Helper()
	files, err := filepath.Glob("../../deploy/" + pattern)
	must(r.t, err)
	if len(files) == 0 {
		r.t.Fatalf("no files %s", pattern)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		must(r.t, err)
		r.apply(string(text))
	}
}

func (r *routed) own(kind, name, spec string) {
	r.t.Helper()
	r.apply(fmt.Sprintf("apiVersion: fairlead.io/v1alpha1\nkind: %s\nmetadata: {name: %s}\nspec: %s\n", kind, name, spec))
}

func (r *routed) patch(kind, name, patch string) {
	r.t.Helper()
	_, err := r.any.Resource(kinds[kind]).Patch(context.Background(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	must(r.t, err)
}

func (r *routed) drop(kind, name string) {
	r.t.Helper()
	must(r.t, r.any.Resource(kinds[kind]).Delete(context.Background(), name, metav1.DeleteOptions{}))
}

func (r *routed) secret(password string) {
	r.t.Helper()
	all := r.api.CoreV1().Secrets("fairlead")
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bgp"}, StringData: map[string]string{"password": password}}
	_, err := all.Update(context.Background(), s, metav1.UpdateOptions{})
	if err != nil {
		_, err = all.Create(context.Background(), s, metav1.CreateOptions{})
	}
	must(r.t, err)
}

func (r *routed) onPeers(all []crd.Peer) []problem.Problem {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.peers = all
	r.calls++
	return nil
}

// awaitPeers waits until these were delivered last, as "name address AS hold BFD password".
func (r *routed) awaitPeers(want ...string) {
	r.t.Helper()
	r.follower.await(func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		var got []string
		for _, p := range r.peers {
			got = append(got, fmt.Sprint(p.Name, " ", p.Address, " ", p.AS, " ", p.HoldTime, " ", p.BFD, " ", p.Password))
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("peers %q, want %q", got, want)
		}
		return nil
	})
}

// awaitPrefixes waits until the address is advertised like this: prefixes, or words of the
// reason why not, or "itself" if no Advertisement applies.
func (r *routed) awaitPrefixes(want string) {
	r.t.Helper()
	r.follower.await(func() error {
		if r.follower.snapshot == nil || len(r.follower.snapshot.Services) != 1 {
			return errors.New("there is no snapshot with the Service")
		}
		got := "itself"
		if a := r.follower.snapshot.Advertisements; a != nil {
			offers, why := a.Offers(r.follower.snapshot.Services[0], netip.MustParseAddr("10.1.1.1"))
			var prefixes []netip.Prefix
			for _, o := range offers {
				prefixes = append(prefixes, o.Prefix)
			}
			got = fmt.Sprint(prefixes, why)
		}
		if !strings.Contains(got, want) {
			return fmt.Errorf("announced as %q, want %q", got, want)
		}
		return nil
	})
}

// TestRouting has a balancer that may not read Fairlead's resources at first, then may,
// then sees them created, changed and deleted, with only the permissions of the deployment.
func TestRouting(t *testing.T) {
	t.Parallel()
	r, c := newRouted(t)
	r.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: fairlead}")
	r.apply(`apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: older}
rules:
  - {apiGroups: ["", discovery.k8s.io], resources: [services, nodes, endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: older}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: older}
subjects: [{kind: ServiceAccount, name: fairlead-agent, namespace: fairlead}]
`)
	rack := func(name string) {
		t.Helper()
		r.node("node-a", func(n *corev1.Node) { n.Labels["rack"] = name })
	}
	tier := func(name string) {
		t.Helper()
		r.editService("web", func(s *corev1.Service) { s.Labels = map[string]string{"tier": name} })
	}
	rack("1")
	r.service("web", "10.96.0.50", func(s *corev1.Service) {
		s.Spec.Type, s.Spec.AllocateLoadBalancerNodePorts = corev1.ServiceTypeLoadBalancer, new(false)
	})
	tier("gold")
	r.editService("web", func(s *corev1.Service) {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.1.1.1"}}
	})
	way, config := newRelay(t, c.Config)
	config.Impersonate.UserName = agentUser
	r.follower = newFollower(t, config, Config{Namespace: "fairlead", OnPeers: r.onPeers}, true)

	// What may not be read might restrict it: everything is served, and nothing advertised.
	r.awaitPrefixes("advertisements cannot be read, so nothing new is announced: allow this agent")
	r.follower.awaitProblem(true, "advertisements: cannot be read")
	r.follower.awaitProblem(true, "bgppeers: cannot be read")
	r.mu.Lock()
	if r.calls > 0 {
		t.Errorf("got peers %v, want none: they cannot be read yet", r.peers)
	}
	r.mu.Unlock()
	// An absent resource does not prevent the advertisement.
	r.deploy("manifests/rbac.yaml")
	r.follower.awaitProblem(false, "cannot be read")
	r.awaitPrefixes("itself")
	r.awaitPeers()
	r.deploy("crds/*.yaml")
	r.awaitAdvertisements(rack, tier)
	r.apply(mayGetPassword)
	r.awaitSessions(rack)
	r.awaitQuarantine(c)
	r.awaitRevoked(way, config)
}

// mayGetPassword is what a user adds for a peer with a password, as the Kubernetes page
// explains.
const mayGetPassword = `apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: fairlead-peers, namespace: fairlead}
rules:
  - {apiGroups: [""], resources: [secrets], resourceNames: [bgp], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: fairlead-peers, namespace: fairlead}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: fairlead-peers}
subjects: [{kind: ServiceAccount, name: fairlead-agent, namespace: fairlead}]
`

// awaitRevoked revokes the permissions of a running agent, and of one that starts
// afterwards.
func (r *routed) awaitRevoked(way *relay, config *rest.Config) {
	r.own(kindAdvertisement, "b", "{pools: [web]}")
	r.own(kindPeer, "stays", "{peerAddress: 10.0.0.108}")
	const stays = "stays 10.0.0.108:179 0 9s true "
	r.awaitPrefixes("[10.1.1.1/32]")
	r.awaitPeers(stays)
	all := r.api.RbacV1().ClusterRoleBindings()
	binding, err := all.Get(context.Background(), "fairlead-agent", metav1.GetOptions{})
	must(r.t, err)
	must(r.t, all.Delete(context.Background(), binding.Name, metav1.DeleteOptions{}))
	reconnect := func() { // an open watch continues
		way.set(true)
		way.set(false)
	}
	forbidden := func(resource string) {
		r.t.Helper()
		testkit.Eventually(r.t, patience, func() error {
			all := fmt.Sprint(r.follower.source.Problems())
			if strings.Contains(all, resource+": cannot be read") && strings.Contains(all, "cannot watch resource \""+resource) {
				return nil
			}
			reconnect()
			time.Sleep(3 * time.Second)
			return errors.New(all)
		})
	}
	forbidden(advertisements)
	forbidden(bgpPeers)
	r.awaitPrefixes("[10.1.1.1/32]")
	r.awaitPeers(stays)
	first := r.follower
	r.follower = newFollower(r.t, config, Config{Namespace: "fairlead", OnPeers: func([]crd.Peer) []problem.Problem { return nil }}, true)
	r.awaitPrefixes("advertisements cannot be read")
	binding.ResourceVersion = ""
	_, err = all.Create(context.Background(), binding, metav1.CreateOptions{})
	must(r.t, err)
	r.awaitPrefixes("[10.1.1.1/32]")
	r.follower = first
	r.follower.awaitProblem(false, "cannot be read")
	r.awaitPrefixes("[10.1.1.1/32]")
	// Deleting a CRD deletes all of its objects.
	r.drop("CustomResourceDefinition", "advertisements.fairlead.io")
	r.awaitPrefixes("itself")
}

// awaitDefined waits until Fairlead's resources are served.
func (r *routed) awaitDefined() {
	r.t.Helper()
	r.follower.await(func() error {
		_, err := r.any.Resource(kinds[kindAdvertisement]).List(context.Background(), metav1.ListOptions{})
		_, err2 := r.any.Resource(kinds[kindPool]).List(context.Background(), metav1.ListOptions{})
		_, err3 := r.any.Resource(kinds[kindPeer]).List(context.Background(), metav1.ListOptions{})
		return errors.Join(err, err2, err3)
	})
}

// awaitAdvertisements creates, changes and deletes Advertisements.
func (r *routed) awaitAdvertisements(rack, tier func(string)) {
	r.awaitDefined()
	r.own(kindAdvertisement, "a", "{pools: [web], serviceSelector: {matchLabels: {tier: gold}}, "+
		"nodeSelector: {matchLabels: {rack: \"1\"}}, aggregationLength: 24}")
	r.awaitPrefixes("a is for addresses of pools web, and this one is of none")
	r.own(kindPool, "web", "{addresses: [10.1.1.0/24]}")
	r.awaitPrefixes("[10.1.1.0/24]")
	rack("2")
	r.awaitPrefixes("a is for nodes with labels rack=1")
	rack("1")
	r.awaitPrefixes("[10.1.1.0/24]")
	tier("tin")
	r.awaitPrefixes("a is for Services with labels tier=gold")
	r.patch(kindAdvertisement, "a", `{"spec": {"serviceSelector": null, "aggregationLength": 28}}`)
	r.awaitPrefixes("[10.1.1.0/28]")
	r.patch(kindAdvertisement, "a", `{"spec": {"serviceSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}}`)
	r.follower.awaitProblem(true, "Advertisement a: spec.serviceSelector: ")
	r.awaitPrefixes("a is refused")
	r.drop(kindAdvertisement, "a")
	r.awaitPrefixes("itself")
	r.follower.awaitProblem(false, "Advertisement a")
}

// awaitSessions creates, changes and deletes BGPPeers and a password.
func (r *routed) awaitSessions(rack func(string)) {
	r.own(kindPeer, "plain", "{peerAddress: 10.0.0.108, port: 1179, bfd: {enabled: false}, peerASN: 65000}")
	r.own(kindPeer, "signed", "{peerAddress: 10.0.0.109, passwordSecretRef: bgp, nodeSelector: {matchLabels: {rack: \"1\"}}}")
	plain := "plain 10.0.0.108:1179 65000 9s false "
	r.awaitPeers(plain)
	r.follower.awaitProblem(true, "BGPPeer signed: spec.passwordSecretRef: ")
	r.secret("sesame")
	r.awaitPeers(plain, "signed 10.0.0.109:179 0 9s true sesame")
	r.follower.awaitProblem(false, "BGPPeer")
	r.secret("open")
	r.patch(kindPeer, "signed", `{"spec": {"holdTimeSeconds": 30}}`)
	r.awaitPeers(plain, "signed 10.0.0.109:179 0 30s true open")
	rack("2")
	r.awaitPeers(plain)
	rack("1")
	r.awaitPeers(plain, "signed 10.0.0.109:179 0 30s true open")

	// A session continues without its Secret.
	must(r.t, r.api.CoreV1().Secrets("fairlead").Delete(context.Background(), "bgp", metav1.DeleteOptions{}))
	r.drop(kindPeer, "plain")
	r.awaitPeers("signed 10.0.0.109:179 0 30s true open")
	r.follower.awaitProblem(true, "the password that was read last is used on")
	r.drop(kindPeer, "signed")
	r.awaitPeers()
	r.follower.awaitProblem(false, "BGPPeer")
}
