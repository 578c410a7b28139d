package kubectl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/agent/sysdump"
	"github.com/fairlead/fairlead/agent/verdict"
	"github.com/fairlead/fairlead/internal/kubeclient"
)

// dumpTimeout is the least time that a node may take for a dump.
const dumpTimeout = time.Minute

// answerTime is what is left of it for the transfer.
const answerTime = 15 * time.Second

// leastShare is the least size of a node's part of a dump, in MiB.
const leastShare = 4

// objects are lists of the API server that a dump contains, as paths; NS is the agents'
// namespace. Secrets and ConfigMaps are not among them.
var objects = map[string]string{
	"nodes": "/api/v1/nodes", "pods": "/api/v1/namespaces/NS/pods", "events": "/api/v1/namespaces/NS/events", "daemonsets": "/apis/apps/v1/namespaces/NS/daemonsets",
	"deployments": "/apis/apps/v1/namespaces/NS/deployments", "services": "/api/v1/services", "endpointslices": "/apis/discovery.k8s.io/v1/endpointslices",
	"advertisements": "/apis/fairlead.io/v1alpha1/advertisements", "addresspools": "/apis/fairlead.io/v1alpha1/addresspools", "bgppeers": "/apis/fairlead.io/v1alpha1/bgppeers",
	"quarantines": "/apis/fairlead.io/v1alpha1/quarantines", "nodereports": "/apis/fairlead.io/v1alpha1/nodereports",
	"bgpsessions":    "/apis/fairlead.io/v1alpha1/namespaces/NS/bgpsessions",
	"nodeheartbeats": "/apis/fairlead.io/v1alpha1/namespaces/NS/nodeheartbeats",
	"gateways":       "/apis/gateway.networking.k8s.io/v1/gateways",
}

// mostObjects limits a list, mostLog a log in bytes, atOnce the requests at the same time.
const (
	mostObjects = 2000
	mostLog     = 4 << 20
	atOnce      = 8
)

// getter reads the API server.
type getter interface {
	get(ctx context.Context, path string, params map[string]string) ([]byte, error)
	// pods lists all of Fairlead.
	pods(ctx context.Context, namespace string) ([]corev1.Pod, error)
}

type cluster struct{ client rest.Interface }

func (c cluster) get(ctx context.Context, path string, params map[string]string) ([]byte, error) {
	r := c.client.Get().AbsPath(path)
	for name, value := range params {
		r = r.Param(name, value)
	}
	return r.DoRaw(ctx)
}

func (c cluster) pods(ctx context.Context, namespace string) ([]corev1.Pod, error) {
	list, err := kubeclient.Of[*corev1.Pod, *corev1.PodList](c.client, "pods", namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=fairlead"})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// sysdump makes one archive of the dumps of all nodes, logs and objects.
func (q query) sysdump(ctx context.Context, api getter, args []string, out io.Writer) error {
	f := pflag.NewFlagSet("sysdump", pflag.ContinueOnError)
	file := f.StringP("file", "f", fmt.Sprintf("fairlead-sysdump-%s.tar.gz", time.Now().UTC().Format("20060102-150405")), "`FILE` of the archive")
	size := f.Int64("max-size", sysdump.DefaultMaxSize>>20, "size of the archive in `MiB`")
	since := f.Duration("since", time.Hour, "how far back logs go")
	observe := f.Duration("observe", 3*time.Second, "how long counters and profiles are observed")
	if err := f.Parse(args); err != nil {
		return err
	}
	q.Timeout = max(q.Timeout, dumpTimeout)
	share := max(*size/int64(len(q.pods)), leastShare)
	words := []string{"sysdump", "--file", "-", "--max-size", fmt.Sprint(share), "--since", since.String(), "--observe", observe.String(),
		"--timeout", (q.Timeout - answerTime).String()}
	c := sysdump.Cluster{Files: map[string][]byte{}, Missed: map[string]error{}}
	var wait sync.WaitGroup
	wait.Go(func() { c.Parts = q.dumps(ctx, words) })
	wait.Go(func() {
		v, _ := verdict.Settled(ctx, q.statuses)
		c.Verdict = &v
	})
	wait.Go(func() { q.objects(ctx, api, &c, *since) })
	wait.Wait()
	archive, all, summary := c.Merge(time.Now(), *size<<20)
	return sysdump.WriteFile(*file, archive, summary, all, out)
}

// dumps makes a dump on every node.
func (q query) dumps(ctx context.Context, words []string) []sysdump.Part {
	dumps, errs := q.answers(ctx, words)
	parts := make([]sysdump.Part, len(q.pods))
	for i, p := range q.pods {
		parts[i] = sysdump.Part{Name: p.Spec.NodeName, Dump: &dumps[i], Err: errs[i]}
	}
	return parts
}

// objects adds objects and logs, several at the same time.
func (q query) objects(ctx context.Context, api getter, c *sysdump.Cluster, since time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, q.Timeout)
	defer cancel()
	var redact sysdump.Redactor
	var mu sync.Mutex
	keep := func(name string, text []byte, err error) {
		mu.Lock()
		defer mu.Unlock()
		if text != nil {
			c.Files[name] = text
		}
		if err != nil {
			c.Missed[name] = err
		}
	}
	var group errgroup.Group
	group.SetLimit(atOnce)
	for name, path := range objects {
		group.Go(func() error {
			text, err := q.list(ctx, api, path, &redact)
			keep("cluster/"+name+".json", text, err)
			return nil
		})
	}
	pods, err := api.pods(ctx, q.Namespace)
	keep("cluster/logs", nil, err)
	for _, p := range pods {
		for _, of := range p.Spec.Containers {
			for name, previous := range map[string]bool{"": false, "-previous": true} {
				group.Go(func() error {
					text, err := q.log(ctx, api, p, of.Name, previous, since)
					if text != nil {
						text = redact.Text(text)
					} else if previous { // most containers have no predecessor
						err = nil
					}
					keep(fmt.Sprintf("cluster/logs/%s-%s%s.txt", p.Name, of.Name, name), text, err)
					return nil
				})
			}
		}
	}
	_ = group.Wait() // returns none
}

// list returns a list of the API server. With an error, it may have a part of it.
func (q query) list(ctx context.Context, api getter, path string, redact *sysdump.Redactor) ([]byte, error) {
	text, err := api.get(ctx, strings.ReplaceAll(path, "NS", q.Namespace), map[string]string{"limit": fmt.Sprint(mostObjects)})
	if err != nil {
		return nil, err
	}
	var of struct{ Metadata metav1.ListMeta }
	if json.Unmarshal(text, &of) == nil && of.Metadata.Continue != "" {
		err = fmt.Errorf("only the first %d are here", mostObjects)
	}
	text, invalid := redact.JSON(json.RawMessage(text))
	return text, errors.Join(err, invalid)
}

// log returns the log of a container, or of its predecessor.
func (q query) log(ctx context.Context, api getter, p corev1.Pod, container string, previous bool, since time.Duration) ([]byte, error) {
	text, err := api.get(ctx, fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/log", p.Namespace, p.Name), map[string]string{
		"container": container, "previous": fmt.Sprint(previous), "sinceSeconds": fmt.Sprint(int(since.Seconds())), "limitBytes": fmt.Sprint(mostLog), "timestamps": "true"})
	if err == nil && len(text) >= mostLog {
		err = fmt.Errorf("only the first %d MiB are here", mostLog>>20)
	}
	return text, err
}
