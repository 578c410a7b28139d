package controller_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/controller"
	labkube "github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testkit/promtool"
)

func TestMain(m *testing.M) {
	_, err := promtool.Build()
	if err := errors.Join(err, downloadGatewayAPI()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var more []string
	if flag.Parse(); !strings.Contains(flag.Lookup("test.skip").Value.String(), "TestManaged") {
		more = append(more, "kube-controller-manager") // takes long to build
	}
	labkube.Main(m, more...)
}

// long limits the wait for what should happen immediately, on a busy machine.
const long = time.Minute

// dualStack are the flags of a dual-stack cluster.
var dualStack = []string{"--service-cluster-ip-range=10.96.0.0/12,fd00:10:96::/112"}

// controllerUser has the permissions of deploy/manifests/rbac.yaml.
const controllerUser = "system:serviceaccount:fairlead:fairlead-controller"

// world is a real API server with helpers for tests.
type world struct {
	cluster *labkube.Cluster
	core    kubernetes.Interface
	any     dynamic.Interface
}

func newWorld(t *testing.T, o labkube.Options) *world {
	t.Helper()
	w := &world{cluster: labkube.Start(t, o)}
	var err, err2 error
	w.core, err = kubernetes.NewForConfig(w.cluster.Config)
	plain := rest.CopyConfig(w.cluster.Config)
	plain.ContentType, plain.AcceptContentTypes = "", ""
	w.any, err2 = dynamic.NewForConfig(plain)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	w.must(t, w.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: fairlead}"))
	return w
}

func (w *world) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// resources are the resources of the kinds that tests create.
var resources = map[string]schema.GroupVersionResource{
	"Namespace":                        {Version: "v1", Resource: "namespaces"},
	"ServiceAccount":                   {Version: "v1", Resource: "serviceaccounts"},
	"CustomResourceDefinition":         {Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
	"ClusterRole":                      {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	"ClusterRoleBinding":               {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
	"Role":                             {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
	"RoleBinding":                      {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
	"ValidatingAdmissionPolicy":        {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"},
	"ValidatingAdmissionPolicyBinding": {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"},
	"AddressPool":                      {Group: "fairlead.io", Version: "v1alpha1", Resource: "addresspools"},
	"BGPPeer":                          {Group: "fairlead.io", Version: "v1alpha1", Resource: "bgppeers"},
	"GatewayClass":                     {Group: "gateway.networking.k8s.io", Resource: "gatewayclasses"},
	"Gateway":                          {Group: "gateway.networking.k8s.io", Resource: "gateways"},
	"TCPRoute":                         {Group: "gateway.networking.k8s.io", Resource: "tcproutes"},
	"UDPRoute":                         {Group: "gateway.networking.k8s.io", Resource: "udproutes"},
	"ReferenceGrant":                   {Group: "gateway.networking.k8s.io", Resource: "referencegrants"},
	"Advertisement":                    {Group: "fairlead.io", Version: "v1alpha1", Resource: "advertisements"},
	"NodeReport":                       {Group: "fairlead.io", Version: "v1alpha1", Resource: "nodereports"},
	"NodeHeartbeat":                    {Group: "fairlead.io", Version: "v1alpha1", Resource: "nodeheartbeats"},
	"BGPSession":                       {Group: "fairlead.io", Version: "v1alpha1", Resource: "bgpsessions"},
}

// apply creates the objects of a text.
func (w *world) apply(text string) error {
	dec := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		var o unstructured.Unstructured
		if err := dec.Decode(&o.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if len(o.Object) == 0 {
			continue
		}
		if err := w.create(&o); err != nil {
			return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
}

func (w *world) create(o *unstructured.Unstructured) error {
	of := resources[o.GetKind()]
	of.Version = o.GroupVersionKind().Version
	r := w.any.Resource(of)
	var err error
	if o.GetNamespace() != "" {
		_, err = r.Namespace(o.GetNamespace()).Create(context.Background(), o, metav1.CreateOptions{})
	} else {
		_, err = r.Create(context.Background(), o, metav1.CreateOptions{})
	}
	return err
}

// deploy creates the objects of files under deploy/.
func (w *world) deploy(t *testing.T, pattern string) {
	t.Helper()
	w.deployOnly(t, pattern, "kind: ")
}

// deployOnly creates those that contain a given word.
func (w *world) deployOnly(t *testing.T, pattern, word string) {
	t.Helper()
	files, err := filepath.Glob("../deploy/" + pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no files %s: %v", pattern, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		w.must(t, err)
		for object := range strings.SplitSeq(string(text), "\n---\n") {
			if strings.Contains(object, word) {
				w.must(t, w.apply(object))
			}
		}
	}
}

// install creates the CRDs, and waits until they are served.
func (w *world) install(t *testing.T) {
	t.Helper()
	w.deploy(t, "crds/*.yaml")
	eventually(t, "the resources are served", func() string {
		for _, kind := range []string{"AddressPool", "BGPPeer", "Advertisement", "NodeReport", "NodeHeartbeat", "BGPSession"} {
			if _, err := w.any.Resource(resources[kind]).List(context.Background(), metav1.ListOptions{}); err != nil {
				return err.Error()
			}
		}
		return ""
	})
}

// pool creates an AddressPool from a spec in YAML flow style.
func (w *world) pool(t *testing.T, name, spec string) {
	t.Helper()
	w.must(t, w.apply(poolText(name, spec)))
}

func poolText(name, spec string) string {
	return fmt.Sprintf("apiVersion: fairlead.io/v1alpha1\nkind: AddressPool\nmetadata: {name: %s}\nspec: %s\n", name, spec)
}

// dropPool deletes an AddressPool.
func (w *world) dropPool(t *testing.T, name string) {
	t.Helper()
	w.must(t, w.any.Resource(resources["AddressPool"]).Delete(context.Background(), name, metav1.DeleteOptions{}))
}

// serve creates a LoadBalancer Service with port 80, modified by the functions.
func (w *world) serve(t *testing.T, name string, change ...func(*corev1.Service)) {
	t.Helper()
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Annotations: map[string]string{}}}
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	s.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80}}
	for _, c := range change {
		c(s)
	}
	_, err := w.core.CoreV1().Services("default").Create(context.Background(), s, metav1.CreateOptions{})
	w.must(t, err)
}

// change changes a Service.
func (w *world) change(t *testing.T, name string, change func(*corev1.Service)) {
	t.Helper()
	eventually(t, name+" is changed", func() string {
		s, err := w.core.CoreV1().Services("default").Get(context.Background(), name, metav1.GetOptions{})
		if err == nil {
			if s.Annotations == nil {
				s.Annotations = map[string]string{}
			}
			change(s)
			_, err = w.core.CoreV1().Services("default").Update(context.Background(), s, metav1.UpdateOptions{})
		}
		if err != nil {
			return err.Error()
		}
		return ""
	})
}

func (w *world) drop(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		w.must(t, w.core.CoreV1().Services("default").Delete(context.Background(), name, metav1.DeleteOptions{}))
	}
}

// stands returns the state of a Service: its addresses, and the reason and message of its
// condition.
func (w *world) stands(name string) string {
	s, err := w.core.CoreV1().Services("default").Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	var parts []string
	for _, in := range s.Status.LoadBalancer.Ingress {
		text := in.IP
		if in.IPMode == nil || *in.IPMode != corev1.LoadBalancerIPModeVIP {
			text += " not as VIP"
		}
		parts = append(parts, text)
	}
	text := strings.Join(parts, ",")
	if c := meta.FindStatusCondition(s.Status.Conditions, controller.ConditionAssigned); c != nil {
		text += fmt.Sprintf(" %s %s: %s", c.Status, c.Reason, c.Message)
	}
	return text
}

// want waits until a Service stands so, as far as the words go.
func (w *world) want(t *testing.T, name, want string) {
	t.Helper()
	eventually(t, name, func() string {
		if got := w.stands(name); !strings.HasPrefix(got, want) {
			return fmt.Sprintf("stands %q, want %q", got, want)
		}
		return ""
	})
}

// wantEither waits until a Service is in one of two states, and reports whether it is the
// second.
func (w *world) wantEither(t *testing.T, name, one, other string) (second bool) {
	t.Helper()
	eventually(t, name, func() string {
		got := w.stands(name)
		if second = strings.HasPrefix(got, other); !second && !strings.HasPrefix(got, one) {
			return fmt.Sprintf("stands %q, want %q or %q", got, one, other)
		}
		return ""
	})
	return second
}

// wantEvent waits for an Event about an object.
func (w *world) wantEvent(t *testing.T, name, reason, words string) {
	t.Helper()
	eventually(t, "the Event "+reason+" of "+name, func() string {
		all, err := w.core.EventsV1().Events("").List(context.Background(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		var seen []string
		for _, e := range all.Items {
			if e.Regarding.Name == name {
				seen = append(seen, e.Reason+": "+e.Note)
			}
			if e.Regarding.Name == name && e.Reason == reason && strings.Contains(e.Note, words) {
				return ""
			}
		}
		return fmt.Sprintf("there are %q", seen)
	})
}

// eventually waits until a check returns "".
func eventually(t *testing.T, what string, check func() string) {
	t.Helper()
	wrong := ""
	for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if wrong = check(); wrong == "" {
			return
		}
	}
	t.Fatalf("%s: %s", what, wrong)
}

// journal records the log of a controller.
type journal struct {
	testkit.Output
	of *controller.Controller
}

// wants waits for words in the log.
func (j *journal) wants(t *testing.T, words string) {
	t.Helper()
	eventually(t, "the log", func() string {
		if text := j.String(); !strings.Contains(text, words) {
			return fmt.Sprintf("lacks %q:\n%s", words, text)
		}
		return ""
	})
}

// brief shortens the time that others wait for a controller that is cut off. On a busy
// machine it may cost a healthy controller its Lease too.
func brief(c *controller.Config) { c.LeaseDuration = 3 * time.Second }

// control runs a controller with exactly its permissions until it is stopped or the test
// ends.
func (w *world) control(t *testing.T, change ...func(*controller.Config)) (log *journal, stop func()) {
	t.Helper()
	client, err := w.cluster.ConfigFor(controllerUser)
	w.must(t, err)
	log = &journal{}
	c := controller.Config{
		Client: client, StatusInterval: 200 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(log, nil)),
	}
	for _, f := range change {
		f(&c)
	}
	k, err := controller.New(c)
	w.must(t, err)
	log.of = k
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(long):
			t.Error("the controller does not end")
		}
	})
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			t.Logf("controller:\n%s", log)
		}
	})
	return log, stop
}

func annotated(pairs ...string) func(*corev1.Service) {
	return func(s *corev1.Service) {
		for i := 0; i < len(pairs); i += 2 {
			s.Annotations[pairs[i]] = pairs[i+1]
		}
	}
}
