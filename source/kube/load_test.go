package kube

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
	labkube "github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/source"
)

// loaderEnv makes this test binary load a cluster once and report the cost: "source",
// "both" (with a balancer) or "informer", and a kubeconfig.
const loaderEnv = "KUBE_TEST_LOADER"

// counter is a Sink that stores what it receives, as the service proxy does.
type counter struct {
	services map[service.ID]*proxy.Service
	slices   map[proxy.SliceID]*proxy.Slice
	loaded   chan struct{}
}

func (c *counter) SetService(s *proxy.Service)  { c.services[s.ID] = s }
func (c *counter) DeleteService(id service.ID)  { delete(c.services, id) }
func (c *counter) SetSlice(s *proxy.Slice)      { c.slices[s.ID] = s }
func (c *counter) DeleteSlice(id proxy.SliceID) { delete(c.slices, id) }
func (c *counter) SetNode(proxy.Node)           {}
func (c *counter) Loaded()                      { close(c.loaded) }

func runLoader(what string) int {
	began := time.Now()
	what, kubeconfig, _ := strings.Cut(what, " ")
	load := loadSource
	if what == "informer" {
		load = loadInformer
	}
	hold, n, err := load(kubeconfig, what == "both")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	took := time.Since(began)
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	fmt.Println(n, took.Seconds(), float64(usage.Utime.Nano()+usage.Stime.Nano())/1e9, float64(usage.Maxrss)/1024, float64(m.HeapAlloc)/(1<<20))
	runtime.KeepAlive(hold)
	return 0
}

func loadSource(kubeconfig string, balance bool) (any, int, error) {
	c := &counter{map[service.ID]*proxy.Service{}, map[proxy.SliceID]*proxy.Slice{}, make(chan struct{})}
	s, err := New(Config{Kubeconfig: kubeconfig, Node: "node-1", Sink: c, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, 0, err
	}
	published := make(chan struct{}, 1)
	var publish func(source.Snapshot)
	if balance {
		publish = func(source.Snapshot) { published <- struct{}{} }
	}
	go s.Run(context.Background(), publish)
	if <-c.loaded; balance {
		<-published
	}
	return []any{c, s}, len(c.services) + len(c.slices), nil
}

// loadInformer uses plain informers for comparison.
func loadInformer(kubeconfig string, _ bool) (any, int, error) {
	config, err := Connection(kubeconfig)
	if err != nil {
		return nil, 0, err
	}
	config.ContentType, config.AcceptContentTypes, config.QPS = contentType, contentType, -1
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, 0, err
	}
	f := informers.NewSharedInformerFactory(api, 0)
	a, b := f.Core().V1().Services().Informer(), f.Discovery().V1().EndpointSlices().Informer()
	f.Start(context.Background().Done())
	cache.WaitForCacheSync(context.Background().Done(), a.HasSynced, b.HasSynced)
	return f, len(a.GetStore().List()) + len(b.GetStore().List()), nil
}

// BenchmarkLoad loads 50,000 Services with 3 endpoints each in separate processes, compared
// with plain informers in the same run. The Services are written directly to etcd, and have
// no managed fields.
func BenchmarkLoad(b *testing.B) {
	c := labkube.Start(b, labkube.Options{Seed: &labkube.Seed{Services: 50_000, Endpoints: 3}})
	cases := []string{"informer", "source", "both"}
	sums, rounds := map[string][4]float64{}, 0
	for b.Loop() {
		for i := range cases {
			what := cases[(i+rounds)%len(cases)] // the order rotates
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), loaderEnv+"="+what+" "+c.Kubeconfig)
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			if err != nil {
				b.Fatalf("%s: %v: %s", what, err, out)
			}
			var n int
			var v [4]float64
			if _, err := fmt.Sscan(string(out), &n, &v[0], &v[1], &v[2], &v[3]); err != nil || n != 100_001 && n != 100_002 {
				b.Fatalf("%s: %v: %q", what, err, out)
			}
			sum := sums[what]
			for i := range v {
				sum[i] += v[i]
			}
			sums[what] = sum
			b.Logf("%s: %.2f s, %.2f s of CPU, %.0f MB at most, %.0f MB of heap", what, v[0], v[1], v[2], v[3])
		}
		rounds++
	}
	for what, sum := range sums {
		for i, unit := range []string{"s", "cpu-s", "rss-MB", "heap-MB"} {
			b.ReportMetric(sum[i]/float64(rounds), what+"-"+unit)
		}
	}
}
