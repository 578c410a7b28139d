package controller_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/controller"
	labkube "github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/source"
	"github.com/fairlead/fairlead/source/gateway"
	sourcekube "github.com/fairlead/fairlead/source/kube"
	"github.com/fairlead/fairlead/source/object"
)

// Versions of the Gateway API whose CRDs the tests use: one with routes in v1, one with
// routes only in v1alpha2.
const newGatewayAPI, oldGatewayAPI = "v1.6.0", "v1.4.1"

// gatewayEnv returns the environment variable with the directory of a version's module.
func gatewayEnv(version string) string { return "FAIRLEAD_GATEWAY_API_" + version }

// downloadGatewayAPI downloads the modules with the CRDs before the tests enter a sandbox
// without a network.
func downloadGatewayAPI() error {
	for _, version := range []string{newGatewayAPI, oldGatewayAPI} {
		if os.Getenv(gatewayEnv(version)) != "" {
			continue
		}
		c := exec.Command("go", "mod", "download", "-json", "sigs.k8s.io/gateway-api@"+version)
		c.Dir = os.TempDir()
		out, err := c.Output()
		var module struct{ Dir, Error string }
		if err == nil {
			err = json.Unmarshal(out, &module)
		}
		if err != nil {
			return fmt.Errorf("download the Gateway API %s: %w\n%s", version, err, out)
		}
		if err := os.Setenv(gatewayEnv(version), module.Dir); err != nil {
			return err
		}
	}
	return nil
}

// installGatewayAPI creates the CRDs of a version, and the class.
func (w *world) installGatewayAPI(t *testing.T, version string) {
	t.Helper()
	for _, name := range []string{"gatewayclasses", "gateways", "tcproutes", "udproutes", "referencegrants"} {
		text, err := os.ReadFile(fmt.Sprintf("%s/config/crd/experimental/gateway.networking.k8s.io_%s.yaml", os.Getenv(gatewayEnv(version)), name))
		w.must(t, err)
		w.must(t, w.apply(string(text)))
	}
	routes := map[string]string{newGatewayAPI: "v1", oldGatewayAPI: "v1alpha2"}[version]
	for kind, version := range map[string]string{"GatewayClass": "v1", "Gateway": "v1", "ReferenceGrant": "v1beta1", "TCPRoute": routes, "UDPRoute": routes} {
		of := resources[kind]
		of.Version = version
		eventually(t, kind+" is served", func() string {
			if _, err := w.any.Resource(of).List(context.Background(), metav1.ListOptions{}); err != nil {
				return err.Error()
			}
			return ""
		})
	}
	w.deployOnly(t, "manifests/gateway/gateway.yaml", "kind: GatewayClass\n")
}

// ofGatewayAPI reads an object of the Gateway API; the version is that of routes.
func ofGatewayAPI[T any](t *testing.T, w *world, version, kind, namespace, name string) (o T) {
	t.Helper()
	of := resources[kind]
	of.Version = version
	u, err := w.any.Resource(of).Namespace(namespace).Get(context.Background(), name, metav1.GetOptions{})
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &o)
	}
	w.must(t, err)
	return o
}

// patch changes an object of the Gateway API.
func (w *world) patch(t *testing.T, version, kind, namespace, name, patch string) {
	t.Helper()
	of := resources[kind]
	of.Version = version
	_, err := w.any.Resource(of).Namespace(namespace).Patch(context.Background(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	w.must(t, err)
}

func (w *world) remove(t *testing.T, version, kind, namespace, name string) {
	t.Helper()
	of := resources[kind]
	of.Version = version
	w.must(t, w.any.Resource(of).Namespace(namespace).Delete(context.Background(), name, metav1.DeleteOptions{}))
}

func formatConditions(all []metav1.Condition, generation int64) string {
	var words []string
	for _, c := range all {
		text := fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason)
		if c.ObservedGeneration != generation || c.LastTransitionTime.IsZero() {
			text += " (old)"
		}
		words = append(words, text)
	}
	return strings.Join(words, " ")
}

// wantGateway waits until a Gateway has this status: its addresses, its conditions, and the
// name, routes and conditions of each listener.
func (w *world) wantGateway(t *testing.T, name, want string) {
	t.Helper()
	eventually(t, "Gateway "+name, func() string {
		g := ofGatewayAPI[gateway.Gateway](t, w, "v1", "Gateway", "default", name)
		var parts []string
		for _, a := range g.Status.Addresses {
			parts = append(parts, a.Value)
		}
		parts = append(parts, formatConditions(g.Status.Conditions, g.Generation))
		for _, l := range g.Status.Listeners {
			parts = append(parts, fmt.Sprintf("| %s %d %s", l.Name, l.AttachedRoutes, formatConditions(l.Conditions, g.Generation)))
		}
		if got := strings.Join(parts, " "); got != want {
			return fmt.Sprintf("stands\n%s, want\n%s", got, want)
		}
		return ""
	})
}

// wantRoute waits until a route has these conditions at its parents.
func (w *world) wantRoute(t *testing.T, version, kind, name, want string) {
	t.Helper()
	eventually(t, kind+" "+name, func() string {
		r := ofGatewayAPI[gateway.Route](t, w, version, kind, "default", name)
		var parts []string
		for _, p := range r.Status.Parents {
			parts = append(parts, fmt.Sprintf("%s at %s: %s", p.ControllerName, p.ParentRef.Name, formatConditions(p.Conditions, r.Generation)))
		}
		if got := strings.Join(parts, "; "); got != want {
			return fmt.Sprintf("stands\n%s, want\n%s", got, want)
		}
		return ""
	})
}

// wantServed waits until a balancer serves exactly this for a Gateway.
func (b *balancer) wantServed(t *testing.T, name, want string) {
	t.Helper()
	eventually(t, "what balancers serve of "+name, func() string {
		b.mu.Lock()
		defer b.mu.Unlock()
		var text bytes.Buffer
		for _, s := range b.last.Services {
			for _, f := range s.Frontends {
				if s.ID.Name != "gateway/"+name {
					continue
				}
				fmt.Fprintf(&text, "%s ->", f.Key)
				for _, be := range f.Backends {
					fmt.Fprintf(&text, " %s*%d", be.Addr, be.Weight)
				}
				text.WriteString("; ")
			}
		}
		if got := strings.TrimSuffix(text.String(), "; "); got != want {
			return fmt.Sprintf("%q, want %q; problems %v", got, want, b.last.Problems)
		}
		return ""
	})
}

func gatewayAPI(c *controller.Config) { c.GatewayAPI = true }

// gatewayBalancer returns a balancer with the permissions of agents.
func (w *world) gatewayBalancer(t *testing.T) *balancer {
	t.Helper()
	path, err := w.cluster.KubeconfigFor("system:serviceaccount:fairlead:fairlead-agent")
	w.must(t, err)
	return w.balancer(t, func(c *sourcekube.Config) { c.Kubeconfig, c.GatewayAPI = path, true })
}

func clusterIP(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP }

func gatewayText(name, spec string) string {
	return fmt.Sprintf("apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: %s, namespace: default}\nspec: {gatewayClassName: fairlead, %s}\n", name, spec)
}

func routeText(version, kind, name, gateway, backends string) string {
	return fmt.Sprintf("apiVersion: gateway.networking.k8s.io/%s\nkind: %s\nmetadata: {name: %s, namespace: default}\n"+
		"spec: {parentRefs: [{name: %s}], rules: [{backendRefs: [%s]}]}\n", version, kind, name, gateway, backends)
}

const (
	tcp80       = "listeners: [{name: web, port: 80, protocol: TCP}]"
	listening   = "Accepted=True/Accepted Conflicted=False/NoConflicts ResolvedRefs=True/ResolvedRefs Programmed=True/Programmed"
	goodGateway = "Accepted=True/Accepted Programmed=True/Programmed"
	goodRoute   = "fairlead.io/gateway at g: Accepted=True/Accepted ResolvedRefs=True/ResolvedRefs"
)

// TestGatewayAPI installs the Gateway API in a cluster with a controller and a balancer,
// with the permissions of the chart, and creates, changes and deletes its objects.
func TestGatewayAPI(t *testing.T) {
	t.Parallel()
	w := newWorld(t, labkube.Options{})
	w.deploy(t, "manifests/rbac.yaml")
	w.deployOnly(t, "manifests/gateway/gateway.yaml", "kind: ClusterRole")
	w.install(t)
	w.pool(t, "p", "{addresses: [10.1.1.0/30]}")
	log, stop := w.control(t, gatewayAPI)
	log.wants(t, "waiting for it")
	w.serve(t, "first")
	w.want(t, "first", "10.1.1.0 True")
	w.serve(t, "web", clusterIP)
	w.serve(t, "more", clusterIP)
	w.slice(t, "web-1", "web", "test", "172.16.0.1", "172.16.0.2")
	w.slice(t, "more-1", "more", "test", "172.16.0.9")

	b := w.gatewayBalancer(t)
	eventually(t, "without the Gateway API Services are served", func() string {
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.last.Services) != 1 || b.last.Services[0].ID.Name != "first" || len(b.last.Problems) > 0 {
			return fmt.Sprintf("%+v", b.last)
		}
		return ""
	})

	w.installGatewayAPI(t, newGatewayAPI)
	log.wants(t, "the Gateway API is now available")
	eventually(t, "the class", func() string {
		c := ofGatewayAPI[gateway.Class](t, w, "v1", "GatewayClass", "", "fairlead")
		if got := formatConditions(c.Status.Conditions, c.Generation); !strings.Contains(got, "Accepted=True/Accepted") {
			return got
		}
		return ""
	})
	w.must(t, w.apply(gatewayText("g", tcp80)))
	w.wantGateway(t, "g", "10.1.1.1 "+goodGateway+" | web 0 "+listening)
	w.must(t, w.apply(routeText("v1", "TCPRoute", "r", "g", "{name: web, port: 80}")))
	w.wantRoute(t, "v1", "TCPRoute", "r", goodRoute)
	w.wantGateway(t, "g", "10.1.1.1 "+goodGateway+" | web 1 "+listening)
	b.wantServed(t, "g", "TCP 10.1.1.1:80 -> 172.16.0.1:8080*1 172.16.0.2:8080*1")

	w.gatewayRoutes(t, b)
	w.gatewayAddresses(t, b)

	// Another leader finds everything unchanged, and writes nothing.
	w.wantGateway(t, "g", "10.1.1.1 "+goodGateway+" | web 1 "+listening)
	w.gatewayReported(t)
	stop()
	before := ofGatewayAPI[gateway.Gateway](t, w, "v1", "Gateway", "default", "g").ResourceVersion
	log, stop = w.control(t, gatewayAPI)
	log.wants(t, "loaded")
	w.serve(t, "second")
	w.want(t, "second", "10.1.1.2 True")
	if now := ofGatewayAPI[gateway.Gateway](t, w, "v1", "Gateway", "default", "g").ResourceVersion; now != before {
		t.Error("a Gateway that did not change has been written")
	}
	// A Gateway of another class is no longer served, nor is a deleted one.
	w.patch(t, "v1", "Gateway", "default", "g", `{"spec": {"gatewayClassName": "theirs"}}`)
	b.wantServed(t, "g", "")
	w.wantPool(t, "p", "4=4/2/2")
	w.wantRoute(t, "v1", "TCPRoute", "r", "example.com/other at g: Accepted=True/Accepted (old)")
	w.patch(t, "v1", "Gateway", "default", "g", `{"spec": {"gatewayClassName": "fairlead"}}`)
	b.wantServed(t, "g", "TCP 10.1.1.1:80 -> 172.16.0.1:8080*1 172.16.0.2:8080*1")
	w.remove(t, "v1", "Gateway", "default", "g")
	b.wantServed(t, "g", "")
	w.wantPool(t, "p", "4=4/2/2")
	stop()
}

// gatewayReported has a node report what it has done with the Gateway.
func (w *world) gatewayReported(t *testing.T) {
	ctx, agent := context.Background(), w.reporter(t, "n1")
	g := ofGatewayAPI[gateway.Gateway](t, w, "v1", "Gateway", "default", "g")
	o := source.Outcome{ID: gateway.ID(&g), Created: g.CreationTimestamp.Time}
	for _, c := range []struct{ notProgrammed, notAdvertised, want, listener string }{
		{"Rejected", "Rejected", "Programmed=False/Pending fairlead.io/Advertised=False/NotOnAnyNode", "Programmed=False/Pending"},
		{"NoEndpoints", "NoEndpoints", "Programmed=True/Programmed fairlead.io/Advertised=False/NotOnAnyNode", "Programmed=True/Programmed"},
		{"", "", "Programmed=True/Programmed fairlead.io/Advertised=True/AllNodes", "Programmed=True/Programmed"},
	} {
		o.NotProgrammed, o.NotAdvertised = c.notProgrammed, c.notAdvertised
		agent.ReportServices(ctx, []source.Outcome{o})
		w.wantGateway(t, "g", "10.1.1.1 Accepted=True/Accepted "+c.want+" | web 1 "+strings.ReplaceAll(listening, "Programmed=True/Programmed", c.listener))
	}
}

// gatewayRoutes changes routes.
func (w *world) gatewayRoutes(t *testing.T, b *balancer) {
	w.patch(t, "v1", "TCPRoute", "default", "r", `{"spec": {"rules": [{"backendRefs": [{"name": "web", "port": 80, "weight": 1}, {"name": "more", "port": 80, "weight": 3}]}]}}`)
	b.wantServed(t, "g", "TCP 10.1.1.1:80 -> 172.16.0.1:8080*1 172.16.0.2:8080*1 172.16.0.9:8080*6")
	w.change(t, "more", ports(81))
	w.wantRoute(t, "v1", "TCPRoute", "r", "fairlead.io/gateway at g: Accepted=True/Accepted ResolvedRefs=False/BackendNotFound")
	b.wantServed(t, "g", "TCP 10.1.1.1:80 -> 172.16.0.1:8080*1 172.16.0.2:8080*1")
	// Of two created in the same second, the first by name counts as older.
	w.must(t, w.apply(routeText("v1", "TCPRoute", "second", "g", "{name: more, port: 80}")))
	w.wantRoute(t, "v1", "TCPRoute", "second", "fairlead.io/gateway at g: Accepted=False/Conflicted ResolvedRefs=False/BackendNotFound")
	w.remove(t, "v1", "TCPRoute", "default", "second")

	// A Service of another namespace must permit the reference.
	w.must(t, w.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: app}"))
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "app"}}
	s.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80}}
	_, err := w.core.CoreV1().Services("app").Create(context.Background(), s, metav1.CreateOptions{})
	w.must(t, err)
	w.patch(t, "v1", "TCPRoute", "default", "r", `{"spec": {"rules": [{"backendRefs": [{"name": "web", "port": 80}, {"name": "web", "namespace": "app", "port": 80}]}]}}`)
	w.wantRoute(t, "v1", "TCPRoute", "r", "fairlead.io/gateway at g: Accepted=True/Accepted ResolvedRefs=False/RefNotPermitted")
	w.must(t, w.apply("apiVersion: gateway.networking.k8s.io/v1beta1\nkind: ReferenceGrant\nmetadata: {name: a, namespace: app}\n"+
		"spec: {from: [{group: gateway.networking.k8s.io, kind: TCPRoute, namespace: default}], to: [{group: '', kind: Service}]}"))
	w.wantRoute(t, "v1", "TCPRoute", "r", goodRoute)

	// Other controllers' status of a route stays.
	r := ofGatewayAPI[gateway.Route](t, w, "v1", "TCPRoute", "default", "r")
	theirs := r.Status.Parents[0]
	theirs.ControllerName, theirs.Conditions = "example.com/other", theirs.Conditions[:1]
	text, err := json.Marshal(map[string]any{"status": map[string]any{"parents": append(r.Status.Parents, theirs)}})
	w.must(t, err)
	_, err = w.any.Resource(gateway.V1.WithResource("tcproutes")).Namespace("default").
		Patch(context.Background(), "r", types.MergePatchType, text, metav1.PatchOptions{}, "status")
	w.must(t, err)
	w.patch(t, "v1", "TCPRoute", "default", "r", `{"spec": {"rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}}`)
	w.wantRoute(t, "v1", "TCPRoute", "r", "example.com/other at g: Accepted=True/Accepted (old); "+goodRoute)

	// An additional listener, of the other protocol, with annotations as on Services.
	w.serve(t, "dns", clusterIP, func(s *corev1.Service) {
		s.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 53, Protocol: corev1.ProtocolUDP}}
	})
	w.patch(t, "v1", "Gateway", "default", "g", `{"metadata": {"annotations": {"fairlead.io/forwarding-mode": "fullnat"}}, "spec": {"listeners": [
		{"name": "web", "port": 80, "protocol": "TCP"}, {"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "tls", "port": 443, "protocol": "HTTP"}]}}`)
	w.must(t, w.apply(routeText("v1", "UDPRoute", "u", "g", "{name: dns, port: 53}")))
	w.wantRoute(t, "v1", "UDPRoute", "u", goodRoute)
	w.wantGateway(t, "g", "10.1.1.1 Accepted=True/ListenersNotValid Programmed=True/Programmed | web 1 "+listening+" | dns 1 "+listening+
		" | tls 0 Accepted=False/UnsupportedProtocol Conflicted=False/NoConflicts ResolvedRefs=True/ResolvedRefs Programmed=False/Invalid")
	b.wantServed(t, "g", "UDP 10.1.1.1:53 ->; TCP 10.1.1.1:80 -> 172.16.0.1:8080*1 172.16.0.2:8080*1")
	w.patch(t, "v1", "Gateway", "default", "g", `{"metadata": {"annotations": null}, "spec": {"listeners": [{"name": "web", "port": 80, "protocol": "TCP"}]}}`)
	w.wantRoute(t, "v1", "UDPRoute", "u", "fairlead.io/gateway at g: Accepted=False/NotAllowedByListeners ResolvedRefs=True/ResolvedRefs")
	b.wantServed(t, "g", "TCP 10.1.1.1:80 -> 172.16.0.1:8080*1 172.16.0.2:8080*1")
}

// gatewayAddresses has Gateways and Services request the same addresses.
func (w *world) gatewayAddresses(t *testing.T, b *balancer) {
	w.must(t, w.apply(gatewayText("asks", tcp80+", addresses: [{type: IPAddress, value: 10.1.1.0}]")))
	w.wantGateway(t, "asks", "Accepted=True/Accepted Programmed=False/AddressNotUsable | web 0 "+strings.Replace(listening, "True/Programmed", "False/Pending", 1))
	w.must(t, w.apply(gatewayText("third", tcp80)+"---\n"+gatewayText("fourth", tcp80)))
	w.wantPool(t, "p", "4=4/4/0")
	w.must(t, w.apply(gatewayText("fifth", tcp80)))
	w.wantGateway(t, "fifth", "Accepted=True/Accepted Programmed=False/AddressNotAssigned | web 0 "+strings.Replace(listening, "True/Programmed", "False/Pending", 1))
	w.serve(t, "late")
	w.want(t, "late", " False PoolExhausted")
	w.drop(t, "late")
	w.sentry(t)
	w.drop(t, "first") // asks requests exactly this one, fifth any
	eventually(t, "one has what became free", func() string {
		for _, name := range []string{"asks", "fifth"} {
			for _, a := range ofGatewayAPI[gateway.Gateway](t, w, "v1", "Gateway", "default", name).Status.Addresses {
				if a.Value == "10.1.1.0" {
					return ""
				}
			}
		}
		return "nobody"
	})
	for _, name := range []string{"asks", "third", "fourth", "fifth"} {
		w.remove(t, "v1", "Gateway", "default", name)
	}
	w.wantPool(t, "p", "4=4/1/3")
	w.serve(t, "first")
	w.want(t, "first", "10.1.1.0 True")
}

// TestOlderGatewayAPI has a cluster with routes only in v1alpha2, and a status that cannot
// be written.
func TestOlderGatewayAPI(t *testing.T) {
	t.Parallel()
	w := newWorld(t, labkube.Options{})
	w.deploy(t, "manifests/rbac.yaml")
	w.deployOnly(t, "manifests/gateway/gateway.yaml", "kind: ClusterRole")
	w.install(t)
	w.installGatewayAPI(t, oldGatewayAPI)
	w.pool(t, "p", "{addresses: [10.1.1.0/30]}")
	way := &faulty{}
	w.control(t, gatewayAPI, way.lay)
	w.serve(t, "web", clusterIP)
	w.slice(t, "web-1", "web", "test", "172.16.0.1")
	b := w.gatewayBalancer(t)
	w.must(t, w.apply(gatewayText("g", tcp80)+"---\n"+routeText("v1alpha2", "TCPRoute", "r", "g", "{name: web, port: 80}")))
	w.wantRoute(t, "v1alpha2", "TCPRoute", "r", goodRoute)
	w.wantGateway(t, "g", "10.1.1.0 "+goodGateway+" | web 1 "+listening)
	b.wantServed(t, "g", "TCP 10.1.1.0:80 -> 172.16.0.1:8080*1")

	// The ages of backends behind a Gateway are maintained like a Service's own.
	w.looked(t, "web-1")
	all := w.core.DiscoveryV1().EndpointSlices("default")
	endpoints, err := json.Marshal(endpointsOf("172.16.0.1", "172.16.0.2"))
	w.must(t, err)
	added := fmt.Sprintf(`{"endpoints": %s}`, endpoints)
	_, err = all.Patch(context.Background(), "web-1", types.MergePatchType, []byte(added), metav1.PatchOptions{})
	w.must(t, err)
	b.wantServed(t, "g", "TCP 10.1.1.0:80 -> 172.16.0.1:8080*1 172.16.0.2:8080*1")
	eventually(t, "the time since which the backend serves", func() string {
		s, err := all.Get(context.Background(), "web-1", metav1.GetOptions{})
		w.must(t, err)
		if text := s.Annotations[object.AnnotationBackendTimestamps]; !strings.Contains(text, "172.16.0.2=") {
			return text
		}
		return ""
	})

	// What a Gateway releases is free once that is written.
	way.refuse.Store(new("/gateways/g/status"))
	w.patch(t, "v1", "Gateway", "default", "g", `{"spec": {"addresses": [{"type": "IPAddress", "value": "10.1.1.3"}]}}`)
	eventually(t, "a try", func() string {
		if way.refused.Load() == 0 {
			return "none"
		}
		return ""
	})
	w.serve(t, "next", annotated(object.AnnotationAddresses, "10.1.1.0"))
	w.want(t, "next", " False AddressConflict: it requests 10.1.1.0, which is still in the status of default/gateway/g")
	way.refuse.Store(nil)
	w.want(t, "next", "10.1.1.0 True Assigned")
	b.wantServed(t, "g", "TCP 10.1.1.3:80 -> 172.16.0.1:8080*1 172.16.0.2:8080*1")
}
