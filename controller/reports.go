package controller

import (
	"cmp"
	"context"
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
	if !t.awaitHeartbeats(ctx) || !t.await(ctx, d) {
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
	t.gatherReports(r)
	for _, s := range t.ours(t.services.GetStore().List()) {
		queue.Add(idOf(s))
	}
	t.notifyGateways()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.changed:
			sleep.For(ctx, t.StatusInterval)
			t.queueReported(queue, t.gatherReports(r))
		}
	}
}

// queueReported queues Services whose outcomes have changed. Gateways are few: all of them are
// judged again if the outcome of one has changed.
func (t *term) queueReported(queue serviceQueue, changed map[crd.Fingerprint]bool) {
	others := false
	for f := range changed {
		services, _ := t.services.GetIndexer().ByIndex(byFingerprint, string(f[:]))
		for _, o := range services {
			queue.Add(idOf(o.(*corev1.Service)))
		}
		others = others || len(services) == 0
	}
	if others {
		t.notifyGateways()
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
			keep := keepReports * t.StatusInterval
			r.mu.Lock()
			r.stopped[report.Name] = stoppedReport{report, time.Now().Add(keep)}
			r.mu.Unlock()
			time.AfterFunc(keep, func() { wake.Up(r.changed) })
		},
	})
}

// usedReport is a NodeReport in use. by is its load balancer, since the last renewal of one that
// is silent.
type usedReport struct {
	*v1alpha1.NodeReport
	by    string
	since time.Time
}

// gatherReports determines the reports in use, those of load balancers that exist, and returns
// the Services whose outcomes have changed.
func (t *term) gatherReports(r *reports) (changed map[crd.Fingerprint]bool) {
	now := t.reportsInUse(r)
	was := map[string]usedReport{}
	if all := t.reports.Load(); all != nil {
		for _, one := range *all {
			was[one.Name] = one
		}
	}
	changed = map[crd.Fingerprint]bool{}
	differ := func(a, b *v1alpha1.NodeReportStatus) { crd.Differ(a, b, func(f crd.Fingerprint) { changed[f] = true }) }
	for _, one := range now {
		before, ok := was[one.Name]
		delete(was, one.Name)
		switch {
		case ok && before == one:
		case ok && before.by == one.by && before.since.Equal(one.since):
			differ(&before.Status, &one.Status)
		default:
			if ok {
				differ(&before.Status, nil)
			}
			differ(nil, &one.Status)
		}
	}
	for _, gone := range was {
		differ(&gone.Status, nil)
	}
	t.reports.Store(&now)
	return changed
}

func (t *term) reportsInUse(r *reports) (current []usedReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]*v1alpha1.NodeReport{}
	for name, stopped := range r.stopped {
		if all[name] = stopped.NodeReport; time.Now().After(stopped.until) {
			delete(r.stopped, name)
			delete(all, name)
		}
	}
	for _, one := range listed[v1alpha1.NodeReport](r.informer) {
		all[one.Name] = one
		delete(r.stopped, one.Name)
	}
	for _, one := range all {
		if by := crd.ReportAs(one); !t.isGone(by) {
			current = append(current, usedReport{one, by, t.silentSince(by)})
		}
	}
	slices.SortFunc(current, func(a, b usedReport) int { return cmp.Compare(a.by, b.by) })
	return current
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
			o := crd.OutcomeOf(&report.Status, f)
			if o == nil || own && !isDedicated(report.by) {
				continue
			}
			has = append(has, unlessSilent(v1alpha1.NodeState{Node: report.by, Ready: o.NotProgrammed == "" || irrelevant(o.NotProgrammed), Message: o.NotProgrammed}, report.since))
			node := unlessSilent(v1alpha1.NodeState{Node: report.by, Ready: o.NotAdvertised == "", Message: o.NotAdvertised}, report.since)
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
