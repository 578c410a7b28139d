package kubeproxy

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead/fairlead/lab/bench/proxybench"
)

// Bottom contains the durations of the floor, in seconds.
type Bottom struct{ List, Write float64 }

// Floor does the minimum that a service proxy must do: a plain informer lists and decodes
// all Services and EndpointSlices, and the same number of entries is written to a map. It
// prints the durations as JSON. It runs in its own process, so that it is comparable with
// a proxy.
func Floor(ctx context.Context, kubeconfig string, entries int, out io.Writer) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	core, discovery, err := connect(config)
	if err != nil {
		return err
	}
	began := time.Now()
	services, slices := informer(core, "services", &corev1.Service{}), informer(discovery, "endpointslices", &discoveryv1.EndpointSlice{})
	go services.RunWithContext(ctx)
	go slices.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), services.HasSynced, slices.HasSynced) {
		return ctx.Err()
	}
	var b Bottom
	b.List = time.Since(began).Seconds()
	took, err := proxybench.WriteRaw(entries)
	if err != nil {
		return err
	}
	b.Write = took.Seconds()
	return json.NewEncoder(out).Encode(b)
}

// listed makes an informer use list requests, which an API server answers sooner than
// streaming lists.
type listed struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported has the name that client-go looks for.
func (listed) IsWatchListSemanticsUnSupported() bool { return true }

func informer(client cache.Getter, resource string, kind runtime.Object) cache.Controller {
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: listed{cache.NewListWatchFromClient(client, resource, metav1.NamespaceAll, fields.Everything())},
		ObjectType:    kind, Handler: cache.ResourceEventHandlerFuncs{},
	})
	return controller
}

// floorTime runs the floor, and returns how long it took from process start to output.
func (e *experiment) floorTime(ctx context.Context, c *cluster) (took float64, b Bottom, err error) {
	entries := c.services * (1 + c.endpoints)
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "bench", "kube-floor", "--kubeconfig", c.Kubeconfig, "--entries", strconv.Itoa(entries))
	cmd.Stderr = e.Progress
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return 0, b, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, b, err
	}
	line, failed := bufio.NewReader(pipe).ReadBytes('\n')
	took = time.Since(began).Seconds()
	if err := cmd.Wait(); err != nil {
		return 0, b, fmt.Errorf("the floor: %w", err)
	}
	if failed == nil {
		failed = json.Unmarshal(line, &b)
	}
	return took, b, failed
}
