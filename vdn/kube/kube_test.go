package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/api/v1alpha1"
	labkube "github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/store"
)

func TestMain(m *testing.M) { labkube.Main(m) }

const (
	patience = time.Minute
	// vdnUser has the permissions of deploy/manifests/vdn.
	vdnUser = "system:serviceaccount:fairlead:fairlead-vdn"
)

// world is a cluster with our resources, a store, and a Sync between them.
type world struct {
	t       *testing.T
	cluster *labkube.Cluster
	core    kubernetes.Interface
	own     rest.Interface
	store   *store.Store
	stop    func()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, cluster: labkube.Start(t, labkube.Options{})}
	for _, file := range []string{"crds/fairlead.io_virtualnetworks.yaml", "crds/fairlead.io_networkleases.yaml", "manifests/namespace.yaml", "manifests/vdn/vdn.yaml"} {
		text, err := os.ReadFile(filepath.Join("../../deploy", file))
		w.must(err)
		w.must(w.cluster.Apply(t.Context(), string(text)))
	}
	var err error
	w.store, err = store.Open(t.TempDir(), "daejeon")
	w.must(err)
	t.Cleanup(func() { w.must(w.store.Close()) })
	s, err := New(Config{Client: w.cluster.Config})
	w.must(err)
	w.own = s.own
	w.core, err = kubernetes.NewForConfig(w.cluster.Config)
	w.must(err)
	w.run()
	return w
}

// run synchronizes until stop or the end of the test.
func (w *world) run() {
	config, err := w.cluster.ConfigFor(vdnUser)
	w.must(err)
	s, err := New(Config{Client: config, Store: w.store, GoneAfter: time.Second, Pace: time.Millisecond, Log: slog.New(slog.DiscardHandler)})
	w.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	w.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
		w.stop = func() {}
	}
	w.t.Cleanup(func() { w.stop() })
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) apply(text string) {
	w.t.Helper()
	w.must(w.cluster.Apply(w.t.Context(), text))
}

func (w *world) network(name, spec string) {
	w.t.Helper()
	w.apply(fmt.Sprintf("apiVersion: fairlead.io/v1alpha1\nkind: VirtualNetwork\nmetadata: {name: %s}\nspec: %s\n", name, spec))
}

func (w *world) dropNetwork(name string) {
	w.t.Helper()
	w.must(w.own.Delete().Resource(networksResource).Name(name).Do(w.t.Context()).Error())
}

// wants waits until the store has these networks and their VirtualNetworks have this
// status: "name: attachments, free, Ready and message".
func (w *world) wants(stored string, said ...string) {
	w.t.Helper()
	testkit.Eventually(w.t, patience, func() error {
		var names []string
		for _, n := range w.store.Networks() {
			names = append(names, n.Name)
		}
		if got := strings.Join(names, " "); got != stored {
			return fmt.Errorf("the store has %q, want %q", got, stored)
		}
		var all v1alpha1.VirtualNetworkList
		if err := w.own.Get().Resource(networksResource).Do(w.t.Context()).Into(&all); err != nil {
			return err
		}
		var got []string
		for _, n := range all.Items {
			c := meta.FindStatusCondition(n.Status.Conditions, conditionReady)
			if c == nil {
				return fmt.Errorf("%s has no condition", n.Name)
			}
			line := fmt.Sprintf("%s: %d", n.Name, n.Status.Attachments)
			for _, s := range n.Status.Subnets {
				line += fmt.Sprintf(" %s/%d", s.CIDR, s.Free)
			}
			got = append(got, fmt.Sprintf("%s %s %s", line, c.Status, c.Message))
		}
		if a, b := strings.Join(got, "\n"), strings.Join(said, "\n"); a != b {
			return fmt.Errorf("\n got %s\nwant %s", a, b)
		}
		return nil
	})
}

// attach leases addresses for a pod, as a node requests them; old is the age of the lease.
func (w *world) attach(network, owner, container string, old time.Duration) vdn.Attachment {
	w.t.Helper()
	lease, _, err := w.store.Attach(w.t.Context(), vdn.AttachmentRequest{
		Network: network, Node: "node1", Container: container, Interface: "net1", Owner: owner,
	}, time.Now().Add(-old).Unix())
	w.must(err)
	return lease.Attachment
}

// attachTo leases addresses for a pod with a UID.
func (w *world) attachTo(pod, uid string) vdn.Attachment {
	w.t.Helper()
	lease, _, err := w.store.Attach(w.t.Context(), vdn.AttachmentRequest{
		Network: "science", Node: "node1", Container: pod + uid, Interface: "net1", Owner: "default/" + pod, OwnerUID: uid,
	}, time.Now().Unix())
	w.must(err)
	return lease.Attachment
}

func (w *world) pod(name string) *corev1.Pod {
	w.t.Helper()
	return w.create(corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// create creates a pod with a container.
func (w *world) create(p corev1.Pod) *corev1.Pod {
	w.t.Helper()
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: "c"}}
	made, err := w.core.CoreV1().Pods("default").Create(w.t.Context(), &p, metav1.CreateOptions{})
	w.must(err)
	return made
}

// shows waits until the cluster has exactly these attachments.
func (w *world) shows(want ...string) {
	w.t.Helper()
	testkit.Eventually(w.t, patience, func() error {
		var all v1alpha1.NetworkLeaseList
		if err := w.own.Get().Resource(leasesResource).Do(w.t.Context()).Into(&all); err != nil {
			return err
		}
		var got []string
		for _, a := range all.Items {
			owner := "-"
			if len(a.OwnerReferences) > 0 {
				owner = a.OwnerReferences[0].Kind + " " + string(a.OwnerReferences[0].UID)
			}
			got = append(got, fmt.Sprintf("%s/%s %s %s %s %s of %s", a.Namespace, a.Status.Pod, a.Status.Network, a.Status.Interface,
				strings.Join(a.Status.Addresses, ","), a.Status.Phase, owner))
		}
		if a, b := strings.Join(got, "\n"), strings.Join(want, "\n"); a != b {
			return fmt.Errorf("\n got %s\nwant %s", a, b)
		}
		return nil
	})
}

const (
	science = "{devices: [eth1], subnets: [{cidr: 172.20.0.0/29, gateway: 172.20.0.1}, {cidr: 'fd20::/64'}], guaranteedRate: 400M}"
	free    = "science: 0 172.20.0.0/29/5 fd20::/64/9223372036854775807 True the network matches its spec"
)

// TestNetworks checks that the store's networks match the VirtualNetworks.
func TestNetworks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.network("science", science)
	w.wants("science", free)
	// An overlap is rejected by name, and accepted once the other network is gone.
	w.network("other", "{devices: [eth1], subnets: [{cidr: 172.20.0.0/24}]}")
	testkit.Eventually(t, patience, func() error { return w.refused("other", "172.20.0.0/29", "science") })
	w.dropNetwork("science")
	w.wants("other", "other: 0 172.20.0.0/24/254 True the network matches its spec")

	// A change that would orphan a lease is rejected, and the previous version stays.
	a := w.attach("other", "default/web", "c1", 0)
	w.pod("web")
	w.network("other", "{devices: [eth1], subnets: [{cidr: 10.1.0.0/24}]}")
	testkit.Eventually(t, patience, func() error { return w.refused("other", a.ID) })
	if n, err := w.store.Network("other"); err != nil || n.Subnets[0].CIDR.String() != "172.20.0.0/24" {
		t.Errorf("%v, %v", n, err)
	}
	// Without a VirtualNetwork, a network is deleted with its last attachment, even across
	// a restart.
	w.dropNetwork("other")
	w.stop()
	w.run()
	w.wants("other")
	w.must(w.store.Detach(t.Context(), a.ID))
	w.wants("")

	// The API server itself rejects what the schema can check.
	for spec, why := range map[string]string{
		"{devices: [eth1], subnets: [{cidr: nowhere}]}":                                 "is not in CIDR notation",
		"{devices: [eth1], subnets: [{cidr: 10.0.0.0/8}], maxRate: fast}":               "spec.maxRate",
		"{devices: [eth1], subnets: [{cidr: 10.0.0.0/8}], mode: bridge}":                "Unsupported value",
		"{devices: [], subnets: [{cidr: 10.0.0.0/8}]}":                                  "spec.devices",
		"{devices: [eth1], subnets: [{cidr: 10.0.0.0/8, ranges: [{first: 10.0.0.1}]}]}": "last",
	} {
		err := w.cluster.Apply(t.Context(), "apiVersion: fairlead.io/v1alpha1\nkind: VirtualNetwork\nmetadata: {name: wrong}\nspec: "+spec+"\n")
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", spec, err)
		}
	}
}

// refused returns an error unless a VirtualNetwork is rejected with these words.
func (w *world) refused(name string, words ...string) error {
	var n v1alpha1.VirtualNetwork
	if err := w.own.Get().Resource(networksResource).Name(name).Do(w.t.Context()).Into(&n); err != nil {
		return err
	}
	c := meta.FindStatusCondition(n.Status.Conditions, conditionReady)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != reasonRefused || c.ObservedGeneration != n.Generation {
		return fmt.Errorf("its condition: %+v", c)
	}
	for _, word := range words {
		if !strings.Contains(c.Message, word) {
			return errors.New(c.Message)
		}
	}
	return nil
}

// TestAttachments checks that leases appear next to their pods, and that those of deleted
// pods are released.
func TestAttachments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.network("science", science)
	w.wants("science", free)
	web := w.pod("web")
	a := w.attach("science", "default/web", "c1", 0)
	line := "default/web science net1 " + a.Addresses[0].String() + "," + a.Addresses[1].String() + " %s of Pod " + string(web.UID)
	w.shows(fmt.Sprintf(line, "leased"))
	_, err := w.store.Up(t.Context(), a.ID, vdn.UpReport{Device: "eth1", MAC: "02:00:00:00:00:01", NetNS: "/run/netns/web"})
	w.must(err)
	w.shows(fmt.Sprintf(line, "up"))
	w.attach("science", "", "nobody", 0) // not shown, and never released
	w.wants("science", "science: 2 172.20.0.0/29/3 fd20::/64/9223372036854775807 True the network matches its spec")

	// Changes by others are reverted.
	w.apply("apiVersion: fairlead.io/v1alpha1\nkind: NetworkLease\nmetadata: {name: made-up, namespace: default}\n" +
		"status: {id: x, network: science, pod: x, interface: x, node: x, phase: up, since: '2026-01-01T00:00:00Z'}\n")
	w.shows(fmt.Sprintf(line, "up"))

	// One lease of an earlier pod with the same name, and one of a pod that never existed.
	// The existing pod keeps its lease.
	w.attach("science", "default/web", "former", 2*time.Hour)
	w.attach("science", "default/never", "c2", 0)
	testkit.Eventually(t, patience, func() error {
		var left []string
		for _, a := range w.store.Attachments("", "") {
			left = append(left, a.ID)
		}
		if got := strings.Join(left, " "); got != "c1.net1 nobody.net1" {
			return fmt.Errorf("leased: %s", got)
		}
		return nil
	})
	w.shows(fmt.Sprintf(line, "up"))
	testkit.Eventually(t, patience, func() error {
		events, err := w.core.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{})
		reported := map[string]bool{}
		for i := range events.Items {
			if e := &events.Items[i]; e.Reason == "AttachmentReleased" {
				reported[e.Regarding.Name] = true
			}
		}
		if err != nil || !reported["web"] || !reported["never"] || len(reported) != 2 {
			return fmt.Errorf("Events for %v, %v", reported, err)
		}
		return nil
	})

	// A quickly replaced pod's lease goes to nobody. A static pod is identified by its
	// annotation.
	w.create(corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "static", Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "hash"}}, Spec: corev1.PodSpec{NodeName: "node1"}})
	static := w.attachTo("static", "hash")
	old := w.attachTo("db-0", string(w.pod("db-0").UID))
	w.must(w.core.CoreV1().Pods("default").Delete(t.Context(), "db-0", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	fresh := w.attachTo("db-0", string(w.pod("db-0").UID))
	testkit.Eventually(t, patience, func() error {
		if _, err := w.store.Attachment(old.ID); err == nil {
			return errors.New("still leased")
		}
		return nil
	})
	for _, a := range []vdn.Attachment{static, fresh} {
		if _, err := w.store.Attachment(a.ID); err != nil {
			t.Error(err)
		}
		w.must(w.store.Detach(t.Context(), a.ID))
	}

	// Nothing is released while the API server is unreachable.
	w.must(w.cluster.APIServer.Stop())
	b := w.attach("science", "default/unknown", "c3", 0)
	time.Sleep(3 * time.Second) // three times GoneAfter
	if _, err := w.store.Attachment(b.ID); err != nil {
		t.Errorf("released while the API server was away: %v", err)
	}
	w.must(w.cluster.APIServer.Start(t.Context()))
	testkit.Eventually(t, patience, func() error {
		if _, err := w.store.Attachment(b.ID); err == nil {
			return errors.New("still leased")
		}
		return nil
	})
	w.must(w.core.CoreV1().Pods("default").Delete(t.Context(), "web", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	w.shows()
}
