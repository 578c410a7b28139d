// Package kubectl is kubectl fairlead: it runs query commands of fairlead in the agents'
// pods, through the API server, and merges their output. What the commands do belongs to
// the binary in the pods.
package kubectl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/agent/verdict"
	"github.com/fairlead/fairlead/internal/kubeclient"
)

// Config selects the agents.
type Config struct {
	// Kubeconfig and Context are the same as kubectl's flags; empty: its defaults.
	Kubeconfig, Context string
	Namespace           string
	// Selector selects the agents' pods by label.
	Selector string
	// Node selects the agent of one node; empty for all.
	Node string
	// Timeout bounds how long one node may take, except for commands that follow or watch.
	Timeout time.Duration
}

// Defaults of Config, as the manifests and the chart define them.
const (
	DefaultNamespace = "fairlead"
	DefaultSelector  = "app.kubernetes.io/name=fairlead,app.kubernetes.io/component=agent"
	DefaultTimeout   = 15 * time.Second
)

// container is the name of the agents' container.
const container = "agent"

// Run runs "fairlead ARGS" on every agent in parallel and prints one result: a table with
// a column NODE, or with -o json an object with a field for each node. It returns the
// errors of all nodes that failed; the others are printed anyway.
func Run(ctx context.Context, c Config, args []string, out, errOut io.Writer) error {
	config, client, err := connect(c, corev1.AddToScheme, corev1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	pods, err := agents(ctx, client, c)
	if err != nil {
		return err
	}
	run := func(ctx context.Context, p corev1.Pod, args []string, out io.Writer) error {
		streams := remotecommand.StreamOptions{Stdout: out, Stderr: errOut}
		if args[0] == "sysdump" {
			streams.Stderr = io.Discard // its summary is part of the archive
		}
		return execute(ctx, config, client, p, args, streams)
	}
	q := query{Config: c, pods: pods, run: run}
	if args[0] == "sysdump" {
		return q.sysdump(ctx, cluster{client}, args[1:], out)
	}
	return q.print(ctx, args, out)
}

// connect returns a client of the API server for a group of its resources.
func connect(c Config, add func(*runtime.Scheme) error, group schema.GroupVersion) (*rest.Config, rest.Interface, error) {
	config, err := load(c)
	if err != nil {
		return nil, nil, err
	}
	scheme, err := kubeclient.Scheme(add)
	if err != nil {
		return nil, nil, err
	}
	clients, err := kubeclient.Connect(config, scheme, group)
	if err != nil {
		return nil, nil, err
	}
	return config, clients[group], nil
}

// runner runs a command in a pod.
type runner func(ctx context.Context, p corev1.Pod, args []string, out io.Writer) error

// query runs one command in several pods.
type query struct {
	Config
	pods []corev1.Pod
	run  runner
}

// print runs the command and prints the merged result.
func (q query) print(ctx context.Context, args []string, out io.Writer) error {
	command := parse(args)
	if command.streams || q.Node != "" && len(q.pods) == 1 {
		return q.stream(ctx, args, out)
	}
	for {
		err := q.once(ctx, command, out)
		if err != nil || command.watch == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(command.watch):
		}
		fmt.Fprintln(out)
	}
}

// once runs the command in all pods.
func (q query) once(ctx context.Context, c command, out io.Writer) error {
	answers, errs := q.answers(ctx, c.args)
	nodes := make([]string, len(q.pods))
	for i, p := range q.pods {
		nodes[i] = p.Spec.NodeName
	}
	if c.judges && (c.format == status.Table || c.format == status.Wide) {
		v, _ := verdict.Settled(ctx, q.statuses)
		if err := status.PrintSections(out, []status.Section{{Lines: v.Lines()}}, c.output); err != nil {
			return err
		}
	}
	return errors.Join(append(errs, c.merge(out, nodes, answers))...)
}

// answers runs a command in all pods, each within the timeout, and returns what it prints.
func (q query) answers(ctx context.Context, args []string) (answers []bytes.Buffer, errs []error) {
	answers = make([]bytes.Buffer, len(q.pods))
	errs = q.each(ctx, func(ctx context.Context, i int) error {
		ctx, cancel := context.WithTimeout(ctx, q.Timeout)
		defer cancel()
		return q.run(ctx, q.pods[i], args, &answers[i])
	})
	return answers, errs
}

// stream runs a command until ctx ends and prints each line after the node's name if
// there is more than one node.
func (q query) stream(ctx context.Context, args []string, out io.Writer) error {
	var mu sync.Mutex
	return errors.Join(q.each(ctx, func(ctx context.Context, i int) error {
		w := &lineWriter{mu: &mu, out: out}
		if len(q.pods) > 1 {
			w.prefix = q.pods[i].Spec.NodeName + ": "
		}
		return errors.Join(q.run(ctx, q.pods[i], args, w), w.flush())
	})...)
}

// each calls f for every pod in parallel and returns the errors, named by node.
func (q query) each(ctx context.Context, f func(ctx context.Context, i int) error) []error {
	errs := make([]error, len(q.pods))
	var wait sync.WaitGroup
	for i, p := range q.pods {
		wait.Go(func() {
			err := f(ctx, i)
			if errors.Is(err, context.DeadlineExceeded) {
				err = fmt.Errorf("no answer within %s", q.Timeout)
			}
			if err != nil {
				errs[i] = fmt.Errorf("node %s: %w", p.Spec.NodeName, err)
			}
		})
	}
	wait.Wait()
	return errs
}

func load(c Config) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.Kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: c.Context}).ClientConfig()
}

// agents returns the running pods, sorted by node.
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
	return nil, fmt.Errorf("no agent runs in namespace %s: set --namespace if Fairlead is in another; kubectl get pods -A -l %s",
		c.Namespace, c.Selector)
}

// execute runs "fairlead ARGS" in one pod.
func execute(ctx context.Context, config *rest.Config, client rest.Interface, p corev1.Pod, args []string, o remotecommand.StreamOptions) error {
	request := client.Post().Resource("pods").Namespace(p.Namespace).Name(p.Name).SubResource("exec").
		Param("container", container).Param("stdout", "true").Param("stderr", "true"). // corev1.PodExecOptions
		Param("stdin", strconv.FormatBool(o.Stdin != nil))
	for _, word := range append([]string{"/fairlead"}, args...) {
		request = request.Param("command", word)
	}
	stream, err := remotecommand.NewWebSocketExecutor(config, "GET", request.URL().String())
	if err != nil {
		return err
	}
	err = stream.StreamWithContext(ctx, o)
	if code, ok := errors.AsType[exec.CodeExitError](err); ok {
		return fmt.Errorf("fairlead %s: exit code %d", strings.Join(args, " "), code.Code)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// lineWriter writes whole lines with a prefix, in turn with other writers.
type lineWriter struct {
	mu     *sync.Mutex
	out    io.Writer
	prefix string
	rest   []byte
}

func (w *lineWriter) Write(b []byte) (int, error) {
	if w.prefix == "" { // one node: as it is, which may be binary
		return w.out.Write(b)
	}
	w.rest = append(w.rest, b...)
	end := bytes.LastIndexByte(w.rest, '\n') + 1
	err := w.lines(w.rest[:end])
	w.rest = slices.Clone(w.rest[end:])
	return len(b), err
}

func (w *lineWriter) lines(text []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for line := range bytes.Lines(text) {
		if _, err := fmt.Fprintf(w.out, "%s%s\n", w.prefix, bytes.TrimSuffix(line, []byte("\n"))); err != nil {
			return err
		}
	}
	return nil
}

// flush writes an incomplete last line.
func (w *lineWriter) flush() error { return w.lines(w.rest) }
