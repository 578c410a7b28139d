package controller

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/sleep"
	"github.com/fairlead/fairlead/internal/wake"
	"github.com/fairlead/fairlead/source/crd"
	"github.com/fairlead/fairlead/source/object"
)

// Conditions of Services, in addition to ConditionAssigned. Gateways have
// ConditionAdvertised, too.
const (
	ConditionProgrammed = object.ConditionProgrammed
	ConditionAdvertised = object.ConditionAdvertised
)

// Each write is sent to all watchers of Services, on every node. With 10,000 Services, it
// takes 200 seconds until all show that a node has been added or removed.
const (
	conditionsPerSecond = 50
	conditionsBurst     = 100
)

// How reports are gathered, as multiples of StatusInterval: a new Service gets its
// conditions when all nodes can have reported it, and the report of a node whose agent
// restarts remains in use.
const (
	settleReports = 3
	keepReports   = 12
)

// reports are the NodeReports of the cluster.
type reports struct {
	informer cache.SharedIndexInformer
	// changed has capacity for one element.
	changed chan struct{}

	mu sync.Mutex
	// stopped are reports that were deleted recently.
	stopped map[string]stoppedReport
}

type stoppedReport struct {
	*v1alpha1.NodeReport
	until time.Time
}

// followReports maintains the conditions of Services and Gateways that depend on what nodes
// report until ctx ends.
func (t *term) followReports(ctx context.Context) {
	d := kind{"nodereports", t.api[v1alpha1.GroupVersion], &v1alpha1.NodeReport{}, func() runtime.Object { return &v1alpha1.NodeReportList{} }, nil, nil}
	if !t.await(ctx, d) {
		return
	}
	r := &reports{informer: t.informer(d), changed: make(chan struct{}, 1), stopped: map[string]stoppedReport{}}
	queue, limit := newQueue(), flowcontrol.NewTokenBucketRateLimiter(conditionsPerSecond, conditionsBurst)
	var running sync.WaitGroup
	defer running.Wait()
	defer queue.ShutDown()
	running.Go(func() { r.informer.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), r.informer.HasSynced) {
		return
	}
	t.listenReports(r, queue)
	running.Go(func() {
		t.drainQueue(ctx, "conditions", queue, func(ctx context.Context, id service.ID) bool { return t.judgeReported(ctx, queue, limit, id) })
	})
	for {
		t.gatherReports(r)
		for _, s := range t.ours(t.services.GetStore().List()) {
			queue.Add(idOf(s))
		}
		t.notifyGateways()
		select {
		case <-ctx.Done():
			return
		case <-r.changed:
			sleep.For(ctx, t.StatusInterval)
		}
	}
}

// listenReports subscribes to reports, Services and the loss of load balancers.
func (t *term) listenReports(r *reports, queue serviceQueue) {
	look := func(o any) {
		if t.isOursAny(o) {
			queue.AddAfter(idOf(o.(*corev1.Service)), gather)
		}
	}
	// AddEventHandler fails only if the informer has stopped.
	_, _ = t.services.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: look, UpdateFunc: func(_, o any) { look(o) }})
	t.onLoss(func() { wake.Up(r.changed) })
	_, _ = r.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { wake.Up(r.changed) }, UpdateFunc: func(any, any) { wake.Up(r.changed) },
		DeleteFunc: func(o any) {
			report, ok := o.(*v1alpha1.NodeReport)
			if !ok { // deleted during an interruption, so long ago
				wake.Up(r.changed)
				return
			}
			if isDedicated(crd.ReportAs(report)) { // its pod ends, and another one has another name
				wake.Up(r.changed)
				return
			}
			keep := keepReports * t.StatusInterval
			r.mu.Lock()
			r.stopped[report.Name] = stoppedReport{report, time.Now().Add(keep)}
			r.mu.Unlock()
			time.AfterFunc(keep, func() { wake.Up(r.changed) })
		},
	})
}

// gatherReports determines the reports in use: those of load balancers that exist.
func (t *term) gatherReports(r *reports) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]*v1alpha1.NodeReport{}
	for name, stopped := range r.stopped {
		if all[name] = stopped.NodeReport; time.Now().After(stopped.until) {
			delete(r.stopped, name)
			delete(all, name)
		}
	}
	for _, o := range r.informer.GetStore().List() {
		report := o.(*v1alpha1.NodeReport)
		all[report.Name] = report
		delete(r.stopped, report.Name)
	}
	maps.DeleteFunc(all, func(_ string, r *v1alpha1.NodeReport) bool { return t.isGone(crd.ReportAs(r)) })
	current := slices.SortedFunc(maps.Values(all), func(a, b *v1alpha1.NodeReport) int {
		return cmp.Compare(crd.ReportAs(a), crd.ReportAs(b))
	})
	t.reports.Store(&current)
}

// judgeReported writes those conditions of a Service that depend on reports if they have
// changed, and reports whether that is done.
func (t *term) judgeReported(ctx context.Context, queue serviceQueue, limit flowcontrol.RateLimiter, id service.ID) bool {
	o, exists, _ := t.services.GetStore().GetByKey(id.String())
	if !exists || !t.isOursAny(o) {
		return true
	}
	s := o.(*corev1.Service)
	programmed, advertised := t.reported(id, &s.ObjectMeta, func(string) bool { return false })
	conditions := withKnown(s.Status.Conditions, programmed, advertised)
	if s.DeletionTimestamp != nil || reflect.DeepEqual(conditions, s.Status.Conditions) {
		return true
	}
	settled := settleReports * t.StatusInterval
	if age := time.Since(s.CreationTimestamp.Time); meta.FindStatusCondition(s.Status.Conditions, ConditionProgrammed) == nil && age >= 0 && age < settled {
		queue.AddAfter(id, settled-age)
		return true
	}
	if limit.Wait(ctx) != nil {
		return false
	}
	status := s.Status.DeepCopy()
	status.Conditions = conditions
	return t.write(ctx, s, status)
}

// reported returns the conditions of a Service or Gateway that depend on the reports of the
// load balancers that serve it. irrelevant says which reasons do not count against Programmed.
func (t *term) reported(id service.ID, of *metav1.ObjectMeta, irrelevant func(reason string) bool) (programmed, advertised metav1.Condition) {
	var has, says, silent []v1alpha1.NodeState
	if all := t.reports.Load(); all != nil {
		f := crd.FingerprintOf(id, of.CreationTimestamp.Time)
		own := of.Annotations[object.AnnotationDedicated] == "true"
		for _, report := range *all {
			as := crd.ReportAs(report)
			o := crd.OutcomeOf(&report.Status, f)
			if o == nil || own && !isDedicated(as) {
				continue
			}
			has = append(has, t.heard(v1alpha1.NodeState{Node: as, Ready: o.NotProgrammed == "" || irrelevant(o.NotProgrammed), Message: o.NotProgrammed}))
			node := t.heard(v1alpha1.NodeState{Node: as, Ready: o.NotAdvertised == "", Message: o.NotAdvertised})
			if slices.Contains(silentReasons, o.NotAdvertised) {
				silent = append(silent, node)
			} else {
				says = append(says, node)
			}
		}
	}
	if len(says) == 0 {
		says = silent
	}
	_, programmed = judgeNodes(has)
	_, advertised = judgeNodes(says)
	programmed.Type, advertised.Type = ConditionProgrammed, ConditionAdvertised
	return programmed, advertised
}

// silentReasons are why a node does not advertise what others do.
var silentReasons = []string{"NoMatchingAdvertisement", "ConditionsNotMet", "Draining", "Standby"}

// withKnown sets conditions, but adds none that is not known.
func withKnown(before []metav1.Condition, now ...metav1.Condition) []metav1.Condition {
	return with(before, slices.DeleteFunc(now, func(c metav1.Condition) bool {
		return c.Status == metav1.ConditionUnknown && meta.FindStatusCondition(before, c.Type) == nil
	})...)
}
