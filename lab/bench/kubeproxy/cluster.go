package kubeproxy

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/internal/kubeclient"
	"github.com/fairlead/fairlead/lab/bench/testbed"
	"github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/lab/sandbox"
)

// nodeName is the name of the seeded node on which the proxies run.
const nodeName = "node-0"

// size is the number of Services and the number of endpoints of each.
type size struct{ services, endpoints int }

// cluster is an API server with Services.
type cluster struct {
	*kube.Cluster
	size
	dir             string
	core, discovery rest.Interface

	mu sync.Mutex
	// added counts the added Services, fresh the new endpoints, both on top of the seeded
	// ones.
	added, fresh int
	// first contains the first endpoint of each Service whose first endpoint was changed.
	first map[int]netip.Addr
}

func newCluster(ctx context.Context, o Options, name string, s size) (*cluster, error) {
	c := &cluster{size: s, first: map[int]netip.Addr{}, dir: filepath.Join(sandbox.WorkDir, "cluster-"+name)}
	logs := filepath.Join(o.Logs, name)
	for _, folder := range []string{c.dir, logs} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, err
		}
	}
	var err error
	c.Cluster, err = kube.New(ctx, c.dir, kube.Options{
		Flags: []string{"--disable-admission-plugins=ServiceAccount"}, Logs: logs,
		Seed: &kube.Seed{Services: s.services, Endpoints: s.endpoints, Namespaces: namespaces},
	})
	if err != nil {
		return nil, err
	}
	if c.core, c.discovery, err = connect(c.Config); err == nil {
		err = c.createNode(ctx)
	}
	if err != nil {
		_ = c.close()
		return nil, err
	}
	return c, nil
}

// close stops the cluster and deletes its data, which is in memory.
func (c *cluster) close() error {
	if err := c.Close(); err != nil {
		return err
	}
	return os.RemoveAll(c.dir)
}

// connect returns clients for the core and discovery API groups.
func connect(config *rest.Config) (core, discovery rest.Interface, err error) {
	scheme, err := kubeclient.Scheme(corev1.AddToScheme, discoveryv1.AddToScheme)
	if err != nil {
		return nil, nil, err
	}
	c, err := kubeclient.Connect(config, scheme, corev1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion)
	return c[corev1.SchemeGroupVersion], c[discoveryv1.SchemeGroupVersion], err
}

func (c *cluster) createNode(ctx context.Context) error {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: testbed.Node.String()}}},
	}
	return c.core.Post().Resource("nodes").Body(node).Do(ctx).Error()
}

// namespaces is the number of namespaces that the Services are spread over.
const namespaces = 50

func namespaceOf(i int) string { return fmt.Sprintf("ns-%d", i%namespaces) }

// pair is an expected kernel entry: clients of the service are sent to the endpoint.
type pair struct{ service, endpoint netip.Addr }

// freshEndpoint returns an address that no endpoint has used before.
func (c *cluster) freshEndpoint() netip.Addr {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fresh++
	return kube.EndpointAddr(mostEndpoints + c.fresh)
}

// addService creates one more Service, after its EndpointSlice, and returns when the
// server has answered.
func (c *cluster) addService(ctx context.Context) (pair, error) {
	i := c.services + c.added
	c.added++
	made := pair{kube.ServiceAddr(i), c.freshEndpoint()}
	meta := metav1.ObjectMeta{Namespace: namespaceOf(i), Name: fmt.Sprintf("svc-%d", i)}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: meta.Namespace, Name: meta.Name + "-0", Labels: map[string]string{discoveryv1.LabelServiceName: meta.Name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(testbed.Port))}},
		Endpoints:   sliceEndpoints([]netip.Addr{made.endpoint}),
	}
	if err := c.discovery.Post().Namespace(meta.Namespace).Resource("endpointslices").Body(slice).Do(ctx).Error(); err != nil {
		return made, err
	}
	// Request a specific address, because allocating one takes the server long among many
	// Services.
	service := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		ClusterIP: made.service.String(),
		Ports:     []corev1.ServicePort{{Name: "http", Port: testbed.ServicePort, TargetPort: intstr.FromInt32(testbed.Port)}},
	}}
	return made, c.core.Post().Namespace(meta.Namespace).Resource("services").Body(service).Do(ctx).Error()
}

// endpointsOf returns the current endpoints of a seeded Service.
func (c *cluster) endpointsOf(i int) []netip.Addr {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]netip.Addr, c.endpoints)
	for e := range all {
		all[e] = kube.EndpointAddr(i*c.endpoints + e)
	}
	if first, changed := c.first[i]; changed {
		all[0] = first
	}
	return all
}

// changeEndpoint replaces the first endpoint of a seeded Service, and returns when the
// server has answered.
func (c *cluster) changeEndpoint(ctx context.Context, i int) (pair, error) {
	to := c.freshEndpoint()
	c.mu.Lock()
	c.first[i] = to
	c.mu.Unlock()
	return pair{kube.ServiceAddr(i), to}, c.setEndpoints(ctx, i, c.endpointsOf(i))
}

// setEndpoints sets the endpoints of a seeded Service's first slice.
func (c *cluster) setEndpoints(ctx context.Context, i int, all []netip.Addr) error {
	patch, err := json.Marshal(map[string]any{"endpoints": sliceEndpoints(all)})
	if err != nil {
		return err
	}
	return c.discovery.Patch(types.MergePatchType).Namespace(namespaceOf(i)).Resource("endpointslices").
		Name(fmt.Sprintf("svc-%d-0", i)).Body(patch).Do(ctx).Error()
}

func sliceEndpoints(all []netip.Addr) (out []discoveryv1.Endpoint) {
	for _, a := range all {
		out = append(out, discoveryv1.Endpoint{
			Addresses:  []string{a.String()},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
			NodeName:   new("node-1"),
		})
	}
	return out
}

// pods returns addresses for n new pods.
func (c *cluster) pods(n int) (all []netip.Addr) {
	for range n {
		all = append(all, c.freshEndpoint())
	}
	return all
}
