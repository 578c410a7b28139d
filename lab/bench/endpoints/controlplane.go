package endpoints

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/internal/kubeclient"
	"github.com/fairlead/fairlead/lab/kube"
)

// nodes is the number of nodes on which pods are.
const nodes = 4

// workers is the number of concurrent requests.
const workers = 8

// controlPlane is an API server with its clients.
type controlPlane struct {
	*kube.Cluster
	core, discovery rest.Interface
	runs, changes   int
}

func newControlPlane(ctx context.Context, dir string, o Options) (*controlPlane, error) {
	c := &controlPlane{}
	var err error
	c.Cluster, err = kube.New(ctx, dir, kube.Options{
		Flags: []string{"--disable-admission-plugins=ServiceAccount"}, Seed: &kube.Seed{Services: o.Known, Endpoints: 10},
	})
	if err != nil {
		return nil, err
	}
	c.Config.WarningHandler = rest.NoWarnings{} // Endpoints are deprecated
	scheme, err := kubeclient.Scheme(corev1.AddToScheme, discoveryv1.AddToScheme)
	if err == nil {
		var all kubeclient.Clients
		if all, err = kubeclient.Connect(c.Config, scheme, corev1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion); err == nil {
			c.core, c.discovery = all[corev1.SchemeGroupVersion], all[discoveryv1.SchemeGroupVersion]
			err = c.createNodes(ctx, max(nodes, slices.Max(o.Nodes)))
		}
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

func nodeName(i int) string { return fmt.Sprintf("node-%d", i) }

func (c *controlPlane) createNodes(ctx context.Context, n int) error {
	return parallel(ctx, n, func(ctx context.Context, i int) error {
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: nodeName(i)},
			Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.0.0.%d", 1+i)}}},
		}
		return c.core.Post().Resource("nodes").Body(node).Do(ctx).Error()
	})
}

// parallel calls do with 0 to n-1.
func parallel(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for i := range n {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

// run is a namespace with Services and their pods.
type run struct {
	*controlPlane
	namespace      string
	services, pods int // pods of each Service
}

// newRun creates the namespace and the pods, which are not ready.
func (c *controlPlane) newRun(ctx context.Context, services, pods int) (*run, error) {
	c.runs++
	r := &run{c, fmt.Sprintf("run-%d", c.runs), services, pods}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}}
	if err := c.core.Post().Resource("namespaces").Body(ns).Do(ctx).Error(); err != nil {
		return nil, err
	}
	return r, parallel(ctx, services*pods, func(ctx context.Context, i int) error {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: podName(i), Labels: map[string]string{"app": serviceName(i % services)}}}
		p.Spec.NodeName = nodeName(i % nodes)
		p.Spec.Containers = []corev1.Container{{Name: "a", Image: "a"}}
		return c.core.Post().Namespace(r.namespace).Resource("pods").Body(p).Do(ctx).Error()
	})
}

func podName(i int) string { return fmt.Sprintf("pod-%d", i) }

func serviceName(i int) string { return fmt.Sprintf("svc-%d", i) }

func (r *run) createServices(ctx context.Context) error {
	return parallel(ctx, r.services, func(ctx context.Context, i int) error {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: serviceName(i)}, Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": serviceName(i)},
			Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
		}}
		return r.core.Post().Namespace(r.namespace).Resource("services").Body(s).Do(ctx).Error()
	})
}

// setReady reports a pod as its kubelet would.
func (r *run) setReady(ctx context.Context, i int, ready string) error {
	patch := fmt.Sprintf(`{"status": {"phase": "Running", "podIP": %q, "podIPs": [{"ip": %[1]q}], "conditions": [{"type": "Ready", "status": %q}]}}`,
		kube.EndpointAddr(i), ready)
	return r.core.Patch(types.StrategicMergePatchType).Namespace(r.namespace).Resource("pods").Name(podName(i)).SubResource("status").
		Body([]byte(patch)).Do(ctx).Error()
}

// comeUp makes all pods ready, at most rate per second: one Service after the other, as if
// one Deployment after the other were created. For batching, this is the best case.
func (r *run) comeUp(ctx context.Context, rate int) error {
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	return parallel(ctx, r.services*r.pods, func(ctx context.Context, n int) error {
		i := n%r.pods*r.services + n/r.pods
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			return r.setReady(ctx, i, "True")
		}
	})
}

// end deletes what later runs would have to read.
func (r *run) end(ctx context.Context) error {
	for _, resource := range []string{"services", "pods"} {
		err := r.core.Delete().Namespace(r.namespace).Resource(resource).Body(&metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}).Do(ctx).Error()
		if err != nil {
			return err
		}
	}
	return nil
}

// managerPort is the port of the controller manager's health checks.
const managerPort = 10257

// manage runs the two controllers of endpoints, with at most limit requests per second for
// each if it is not 0.
func (c *controlPlane) manage(ctx context.Context, period time.Duration, limit int) (*kube.Program, error) {
	if limit == 0 {
		limit = 1e6
	}
	p := c.Program(os.Getenv(kube.BinariesEnv), "kube-controller-manager", kube.Page(c.Dial, fmt.Sprintf("https://127.0.0.1:%d/healthz", managerPort)),
		"--kubeconfig", c.Kubeconfig, "--bind-address", "127.0.0.1", "--secure-port", fmt.Sprint(managerPort), "--leader-elect=false",
		"--controllers=endpoints-controller,endpointslice-controller", "--kube-api-qps", fmt.Sprint(limit), "--kube-api-burst", fmt.Sprint(limit),
		"--endpoint-updates-batch-period", period.String(), "--endpointslice-updates-batch-period", period.String())
	return p, p.Start(ctx)
}

// counts is the value of each of the server's metrics, by name and labels.
type counts map[string]float64

func (c *controlPlane) counts(ctx context.Context) (counts, error) {
	page, err := c.core.Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	all := counts{}
	for lines := bufio.NewScanner(bytes.NewReader(page)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), "} ")
		if number, err := strconv.ParseFloat(value, 64); err == nil {
			all[name] = number
		}
	}
	return all, nil
}

// sum adds the metrics of a name that have all of these labels, such as verb="PUT".
func (all counts) sum(name string, labels ...string) (sum float64) {
	for metric, value := range all {
		if strings.HasPrefix(metric, name+"{") && !slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(metric, l) }) {
			sum += value
		}
	}
	return sum
}

// writes is the number of write requests for a resource.
func (all counts) writes(resource string) (sum float64) {
	for _, verb := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		sum += all.sum("apiserver_request_total", `resource="`+resource+`"`, `verb="`+verb+`"`)
	}
	return sum
}
