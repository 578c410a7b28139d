package kube

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// Seed describes Services to write directly into etcd, as kube-apiserver would store
// them. Through the API, 50,000 take an hour, because allocating an address takes longer
// with every Service. Mention it with every result that depends on it.
//
// Service i is svc-i of namespace ns-(i modulo Namespaces), at ServiceAddr(i):80, with
// the endpoints EndpointAddr(i*Endpoints) and following, port 8080, on nodes node-0,
// node-1, ... in rotation.
type Seed struct {
	// Services is the number of Services, Endpoints that of each one. More than 100
	// endpoints are in several slices, as in Kubernetes.
	Services, Endpoints int
	// Namespaces and Nodes are how many the Services are distributed over; 0 means 50 and
	// 1,000.
	Namespaces, Nodes int
	// Each, if not nil, may change a Service and its slices before they are written. It
	// is called in order.
	Each func(i int, s *corev1.Service, slices []*discoveryv1.EndpointSlice)
}

const (
	sliceSize = 100 // maximum endpoints per slice, the default of the endpointslice controller
	batchSize = 500 // writes per transaction
)

// ServiceAddr is the cluster address of a seeded Service. The first addresses of the
// range are left for Services created through the API.
func ServiceAddr(i int) netip.Addr { return nth(netip.MustParsePrefix(ServiceCIDR).Addr(), 4096+i) }

// EndpointAddr is the address of an endpoint, counted over all seeded Services.
func EndpointAddr(i int) netip.Addr { return nth(netip.AddrFrom4([4]byte{10, 128}), i) }

func nth(first netip.Addr, n int) netip.Addr {
	b := first.As4()
	for i := 3; i >= 0; i-- {
		n += int(b[i])
		b[i] = byte(n)
		n >>= 8
	}
	return netip.AddrFrom4(b)
}

// Seed writes Services, their addresses and their slices. A running server sees them like
// any others; one that starts afterwards has them from the start.
func (c *Cluster) Seed(ctx context.Context, s Seed) error {
	if s.Namespaces == 0 {
		s.Namespaces = 50
	}
	if s.Nodes == 0 {
		s.Nodes = 1000
	}
	w := newSeeder(ctx, c.etcd)
	for i := range s.Namespaces {
		w.namespace(fmt.Sprintf("ns-%d", i))
	}
	for i := range s.Services {
		service, slices := s.service(i)
		if s.Each != nil {
			s.Each(i, service, slices)
		}
		w.service(service, slices)
	}
	if err := w.close(); err != nil {
		return fmt.Errorf("seed %d services: %w", s.Services, err)
	}
	return nil
}

func (s Seed) service(i int) (*corev1.Service, []*discoveryv1.EndpointSlice) {
	ip := ServiceAddr(i).String()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("ns-%d", i%s.Namespaces), Name: fmt.Sprintf("svc-%d", i)},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: ip, ClusterIPs: []string{ip},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, IPFamilyPolicy: new(corev1.IPFamilyPolicySingleStack),
			Ports:                 []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(8080)}},
			SessionAffinity:       corev1.ServiceAffinityNone,
			InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyCluster),
		},
	}
	var slices []*discoveryv1.EndpointSlice
	for first := 0; first < s.Endpoints; first += sliceSize {
		slices = append(slices, s.slice(service, i*s.Endpoints+first, min(s.Endpoints-first, sliceSize), len(slices)))
	}
	return service, slices
}

// slice returns an EndpointSlice with n endpoints, starting at first, counted over all
// Services.
func (s Seed) slice(of *corev1.Service, first, n, number int) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: of.Namespace, Name: fmt.Sprintf("%s-%d", of.Name, number), Generation: 1,
			Labels: map[string]string{discoveryv1.LabelServiceName: of.Name, discoveryv1.LabelManagedBy: "seed.fairlead.io"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))}},
	}
	for e := first; e < first+n; e++ {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{EndpointAddr(e).String()},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
			NodeName:   new(fmt.Sprintf("node-%d", e%s.Nodes)),
		})
	}
	return slice
}

// seeder writes objects in batches, several at a time. After its first error it writes
// nothing more.
type seeder struct {
	ctx     context.Context
	group   *errgroup.Group
	etcd    etcd
	encode  runtime.Encoder
	created metav1.Time
	batch   []put
	err     error
}

// stored has only the kinds that are seeded: all of Kubernetes' kinds would add megabytes
// to every program that imports this package.
var stored = sync.OnceValue(func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme, networkingv1.AddToScheme} {
		utilruntime.Must(add(scheme))
	}
	return scheme
})

func newSeeder(ctx context.Context, e etcd) *seeder {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	return &seeder{
		ctx: ctx, group: group, etcd: e,
		encode:  protobuf.NewSerializer(stored(), stored()),
		created: metav1.NewTime(time.Now().Truncate(time.Second)),
	}
}

func (w *seeder) namespace(name string) {
	w.put("namespaces/"+name, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}},
		Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
		Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
	})
}

// service also writes the IPAddress object of the Service, so that no other Service gets
// the address.
func (w *seeder) service(s *corev1.Service, slices []*discoveryv1.EndpointSlice) {
	w.put("services/specs/"+s.Namespace+"/"+s.Name, s)
	for n, ip := range s.Spec.ClusterIPs {
		w.put("ipaddresses/"+ip, &networkingv1.IPAddress{
			ObjectMeta: metav1.ObjectMeta{Name: ip, Labels: map[string]string{
				networkingv1.LabelIPAddressFamily: string(s.Spec.IPFamilies[n]),
				networkingv1.LabelManagedBy:       "ipallocator.k8s.io",
			}},
			Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{
				Resource: "services", Namespace: s.Namespace, Name: s.Name,
			}},
		})
	}
	for _, slice := range slices {
		w.put("endpointslices/"+slice.Namespace+"/"+slice.Name, slice)
	}
}

func (w *seeder) put(key string, o object) {
	if w.err != nil || w.ctx.Err() != nil {
		return
	}
	o.SetUID(types.UID(uuid.NewUUID()))
	o.SetCreationTimestamp(w.created)
	kinds, _, err := stored().ObjectKinds(o)
	if err != nil {
		w.err = err
		return
	}
	o.GetObjectKind().SetGroupVersionKind(kinds[0])
	value, err := runtime.Encode(w.encode, o)
	if err != nil {
		w.err = fmt.Errorf("%s: %w", key, err)
		return
	}
	if w.batch = append(w.batch, put{[]byte("/registry/" + key), value}); len(w.batch) == batchSize {
		w.flush()
	}
}

// object is what can be stored.
type object interface {
	runtime.Object
	metav1.Object
}

func (w *seeder) flush() {
	batch := w.batch
	w.batch = nil
	if len(batch) > 0 {
		w.group.Go(func() error { return w.etcd.write(w.ctx, batch) })
	}
}

func (w *seeder) close() error {
	w.flush()
	if err := w.group.Wait(); err != nil {
		return err
	}
	return w.err
}
