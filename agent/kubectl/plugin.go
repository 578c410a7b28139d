// Package kubectl implements kubectl fairlead: it runs a query command of fairlead in the
// agents' pods through the API server, and combines the answers. The commands themselves
// are those of the binary in the pods.
package kubectl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"

	"github.com/fairlead/fairlead/internal/kubeclient"
)

// Config selects the agents to query.
type Config struct {
	// Kubeconfig and Context are the same as kubectl's flags; empty: its defaults.
	Kubeconfig, Context string
	Namespace           string
	// Selector selects the agents' pods.
	Selector string
	// Node restricts the query to one node; empty: all.
	Node string
}

// Defaults of Config, matching the manifests and the chart.
const (
	DefaultNamespace = "fairlead"
	DefaultSelector  = "app.kubernetes.io/name=fairlead,app.kubernetes.io/component=agent"
)

// container is the name of the agents' container.
const container = "agent"

// Run runs "fairlead ARGS" in every agent and writes the answers ordered by node name:
// each under a heading or, with -o json, as one object with a field for every node. If
// any of them fails, it returns an error after all have been queried.
func Run(ctx context.Context, c Config, args []string, out, errOut io.Writer) error {
	config, err := load(c)
	if err != nil {
		return err
	}
	scheme, err := kubeclient.Scheme(corev1.AddToScheme)
	if err != nil {
		return err
	}
	clients, err := kubeclient.Connect(config, scheme, corev1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	client := clients[corev1.SchemeGroupVersion]
	pods, err := agents(ctx, client, c)
	if err != nil {
		return err
	}
	answers := map[string]json.RawMessage{}
	var errs []error
	for i, p := range pods {
		switch {
		case c.Node != "":
			err = ask(ctx, config, client, p, args, out, errOut)
		case asksJSON(args):
			var b bytes.Buffer
			err = ask(ctx, config, client, p, args, &b, errOut)
			if json.Valid(b.Bytes()) {
				answers[p.Spec.NodeName] = b.Bytes()
			}
		default:
			fmt.Fprintf(out, "%s%s:\n", strings.Repeat("\n", min(i, 1)), p.Spec.NodeName)
			err = ask(ctx, config, client, p, args, out, errOut)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", p.Spec.NodeName, err))
		}
	}
	if c.Node == "" && asksJSON(args) {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		errs = append(errs, e.Encode(answers))
	}
	return errors.Join(errs...)
}

func load(c Config) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.Kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: c.Context}).ClientConfig()
}

// agents returns the running pods by node name.
func agents(ctx context.Context, client rest.Interface, c Config) ([]corev1.Pod, error) {
	o := metav1.ListOptions{LabelSelector: c.Selector}
	if c.Node != "" {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", c.Node).String()
	}
	list, err := kubeclient.Of[*corev1.Pod, *corev1.PodList](client, "pods", c.Namespace).List(ctx, o)
	if err != nil {
		return nil, err
	}
	pods := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.Status.Phase != corev1.PodRunning })
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return strings.Compare(a.Spec.NodeName, b.Spec.NodeName) })
	switch {
	case len(pods) > 0:
		return pods, nil
	case c.Node != "":
		return nil, fmt.Errorf("no agent runs on node %q in namespace %s: kubectl get pods -n %s -o wide -l %s",
			c.Node, c.Namespace, c.Namespace, c.Selector)
	}
	return nil, fmt.Errorf("no agent runs in namespace %s: is Fairlead in another (--namespace)? kubectl get pods -A -l %s",
		c.Namespace, c.Selector)
}

// asksJSON reports whether a command line requests JSON.
func asksJSON(args []string) bool {
	for i, a := range args {
		if a == "-ojson" || a == "-o=json" || a == "--output=json" ||
			(a == "-o" || a == "--output") && i+1 < len(args) && args[i+1] == "json" {
			return true
		}
	}
	return false
}

// ask runs the command in one pod.
func ask(ctx context.Context, config *rest.Config, client rest.Interface, p corev1.Pod, args []string, out, errOut io.Writer) error {
	request := client.Post().Resource("pods").Namespace(p.Namespace).Name(p.Name).SubResource("exec").
		Param("container", container).Param("stdout", "true").Param("stderr", "true") // corev1.PodExecOptions
	for _, word := range append([]string{"/fairlead"}, args...) {
		request = request.Param("command", word)
	}
	stream, err := remotecommand.NewWebSocketExecutor(config, "GET", request.URL().String())
	if err != nil {
		return err
	}
	err = stream.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: out, Stderr: errOut})
	if code, ok := errors.AsType[exec.CodeExitError](err); ok {
		return fmt.Errorf("fairlead %s ended with code %d", strings.Join(args, " "), code.Code)
	}
	return err
}
