package controller

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/source"
	"github.com/fairlead/fairlead/source/crd"
)

// BenchmarkReports has 100 load balancers that serve 10,000 Services. One of them, or all,
// report another outcome of one Service: this is what judging takes.
func BenchmarkReports(b *testing.B) {
	b.Run("one", func(b *testing.B) { benchmarkReports(b, 1) })
	b.Run("all", func(b *testing.B) { benchmarkReports(b, 100) })
}

func benchmarkReports(b *testing.B, changing int) {
	const nodes, services = 100, 10_000
	t := &term{Controller: &Controller{Config: Config{StatusInterval: time.Second}}}
	t.services = cache.NewSharedIndexInformer(nil, &corev1.Service{}, 0, cache.Indexers{byFingerprint: t.fingerprints})
	t.nodes = cache.NewSharedIndexInformer(nil, &corev1.Node{}, 0, nil)
	created := metav1.Unix(1_800_000_000, 0)
	var all []source.Outcome
	for i := range services {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("service-%d", i), CreationTimestamp: created}}
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		_ = t.services.GetStore().Add(s)
		all = append(all, source.Outcome{ID: idOf(s), Created: created.Time})
	}
	r := &reports{informer: cache.NewSharedIndexInformer(nil, &v1alpha1.NodeReport{}, 0, nil), stopped: map[string]stoppedReport{}}
	put := func(node int, all []source.Outcome) {
		name := fmt.Sprintf("n%d", node)
		_ = r.informer.GetStore().Add(&v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: crd.ReportOf(name, all)})
	}
	for i := range nodes {
		_ = t.nodes.GetStore().Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i)}})
		put(i, all)
	}
	judge := func() (judged int) {
		queue := newQueue()
		defer queue.ShutDown()
		t.queueReported(queue, t.gatherReports(r))
		for ; queue.Len() > 0; judged++ {
			id, _ := queue.Get()
			o, _, _ := t.services.GetStore().GetByKey(id.String())
			t.reported(id, &o.(*corev1.Service).ObjectMeta, func(string) bool { return false })
			queue.Done(id)
		}
		return judged
	}
	if n := judge(); n != services {
		b.Fatalf("%d Services are judged at first", n)
	}
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		all[7].NotAdvertised = fmt.Sprint("Reason", i)
		for k := range changing {
			put((i+k)%nodes, all)
		}
		b.StartTimer()
		if n := judge(); n != 1 {
			b.Fatalf("%d Services are judged", n)
		}
	}
}
