package controller

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/core/addresspool"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/wake"
	"github.com/fairlead/fairlead/source/object"
)

// ConditionAssigned is the condition of a Service that reports whether it has the requested
// addresses, and why not.
const ConditionAssigned = object.ConditionAssigned

// Reasons of ConditionAssigned in addition to those of addresspool.
const (
	ReasonAssigned = "Assigned"
	// ReasonInvalidAnnotation: an annotation is invalid.
	ReasonInvalidAnnotation = "InvalidAnnotation"
)

func conditionOf(s *corev1.Service) *metav1.Condition {
	return meta.FindStatusCondition(s.Status.Conditions, ConditionAssigned)
}

// reconcile brings a Service's status up to date, and reports whether that is done; if not,
// it must be retried.
func (t *term) reconcile(ctx context.Context, id service.ID) bool {
	o, exists, err := t.services.GetStore().GetByKey(id.String())
	if err != nil {
		return false
	}
	if !exists { // and so no longer published
		t.release(id)
		return true
	}
	s := o.(*corev1.Service)
	if !t.isOurs(s) {
		return t.part(ctx, s)
	}
	res, leaving, invalid := t.assign(id, s)
	condition := t.judge(s, res, invalid)
	before := conditionOf(s)
	unchanged := before != nil && before.Status == condition.Status && before.Reason == condition.Reason && before.Message == condition.Message
	status := s.Status.DeepCopy()
	meta.SetStatusCondition(&status.Conditions, condition)
	status.LoadBalancer.Ingress = ingress(status.LoadBalancer.Ingress, res.Addrs)
	if unchanged && sameAddrs(s.Status.LoadBalancer.Ingress, status.LoadBalancer.Ingress) && !leaving {
		return true
	}
	if !t.write(ctx, s, status) {
		return false
	}
	t.settle(id)
	if !unchanged {
		t.recordEvent(s, condition.Reason != ReasonAssigned, condition.Reason, "AssignAddress", condition.Message)
	}
	return true
}

// assign assigns addresses to a Service in memory, and reports whether it may still be
// published with others. An invalid request changes nothing.
func (t *term) assign(id service.ID, s *corev1.Service) (res addresspool.Result, leaving bool, invalid error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, invalid := t.request(s)
	before := t.alloc.Held(id)
	switch {
	case invalid != nil:
		res.Addrs = before
	case s.DeletionTimestamp != nil && len(before) == 0:
		// It is being deleted, and gets nothing more.
	default:
		res = t.alloc.Assign(id, r)
	}
	delete(t.waiting, id)
	if slices.ContainsFunc(res.Missing, func(f addresspool.Finding) bool {
		return f.Reason == addresspool.Exhausted || f.Reason == addresspool.Conflict
	}) {
		t.waiting[id] = true
	}
	if res.Changed {
		wake.Up(t.used)
	}
	if res.Changed && len(before) > 0 {
		wake.Up(t.freed)
	}
	return res, len(t.alloc.Leaving(id)) > 0, invalid
}

// settle frees the addresses that a Service had before its status was written.
func (t *term) settle(id service.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.alloc.Settle(id) {
		wake.Up(t.freed)
		wake.Up(t.used)
	}
}

// release frees a Service's addresses.
func (t *term) release(id service.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.waiting, id)
	if t.alloc.Release(id) {
		wake.Up(t.freed)
		wake.Up(t.used)
	}
}

// judge returns the condition of a Service.
func (t *term) judge(s *corev1.Service, res addresspool.Result, invalid error) metav1.Condition {
	c := metav1.Condition{Type: ConditionAssigned, Status: metav1.ConditionTrue, Reason: ReasonAssigned}
	var has []string
	t.mu.Lock()
	for _, a := range res.Addrs {
		text := a.String()
		if pool := t.alloc.PoolOf(a); pool != "" {
			text += " of pool " + pool
		}
		has = append(has, text)
	}
	t.mu.Unlock()
	var words []string
	found := slices.Concat(res.Missing, res.Odd)
	if invalid != nil {
		found = []addresspool.Finding{{Reason: ReasonInvalidAnnotation, Message: strings.ReplaceAll(invalid.Error(), "\n", "; ")}}
	}
	for _, f := range found {
		words = append(words, f.Message)
	}
	if len(found) > 0 {
		c.Reason = string(found[0].Reason)
	}
	// A Service that prefers two families is served with one.
	prefers := s.Spec.IPFamilyPolicy != nil && *s.Spec.IPFamilyPolicy == corev1.IPFamilyPolicyPreferDualStack
	short := invalid != nil || len(res.Missing) > 0 && !(prefers && len(res.Missing) < len(s.Spec.IPFamilies))
	if short || len(res.Addrs) == 0 {
		c.Status = metav1.ConditionFalse
	}
	if len(has) > 0 {
		words = append(words, "it has "+strings.Join(has, ", "))
	}
	c.Message = cmp.Or(strings.Join(words, "; "), "it is being deleted")
	return c
}

// ingress converts addresses for a status. Existing entries with the same address are
// retained.
func ingress(before []corev1.LoadBalancerIngress, addrs []netip.Addr) (all []corev1.LoadBalancerIngress) {
	vip := corev1.LoadBalancerIPModeVIP
	for _, a := range addrs {
		i := slices.IndexFunc(before, func(in corev1.LoadBalancerIngress) bool {
			return in.IP == a.String() && in.IPMode != nil && *in.IPMode == vip
		})
		if i >= 0 {
			all = append(all, before[i])
		} else {
			all = append(all, corev1.LoadBalancerIngress{IP: a.String(), IPMode: &vip})
		}
	}
	return all
}

func sameAddrs(a, b []corev1.LoadBalancerIngress) bool {
	return slices.EqualFunc(a, b, func(x, y corev1.LoadBalancerIngress) bool {
		return x.IP == y.IP && x.Hostname == y.Hostname && (x.IPMode == nil) == (y.IPMode == nil) && (x.IPMode == nil || *x.IPMode == *y.IPMode)
	})
}

// part removes a Service that is not ours any more: its conditions, and the addresses that
// this controller assigned. They are free once that is written.
func (t *term) part(ctx context.Context, s *corev1.Service) bool {
	held := t.alloced(idOf(s))
	if conditionOf(s) != nil || len(held) > 0 {
		status := s.Status.DeepCopy()
		for _, c := range []string{ConditionAssigned, ConditionProgrammed, ConditionAdvertised} {
			meta.RemoveStatusCondition(&status.Conditions, c)
		}
		status.LoadBalancer.Ingress = slices.DeleteFunc(status.LoadBalancer.Ingress, func(in corev1.LoadBalancerIngress) bool {
			a, err := netip.ParseAddr(in.IP)
			return err == nil && (slices.Contains(held, a) || t.poolOf(a) != "")
		})
		if !t.write(ctx, s, status) {
			return false
		}
	}
	t.release(idOf(s))
	return true
}

// alloced returns a Service's addresses, including those it may still be published with.
func (t *term) alloced(id service.ID) []netip.Addr {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append(t.alloc.Held(id), t.alloc.Leaving(id)...)
}

func (t *term) poolOf(a netip.Addr) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.alloc.PoolOf(a)
}

// write writes a Service's status, unless the Service has changed meanwhile, and reports
// whether that is done.
func (t *term) write(ctx context.Context, s *corev1.Service, status *corev1.ServiceStatus) bool {
	if status.Conditions == nil {
		status.Conditions = []metav1.Condition{} // null is not a list
	}
	return t.patch(ctx, t.api[corev1.SchemeGroupVersion], "services", &s.ObjectMeta, nil, map[string]any{
		"loadBalancer": map[string]any{"ingress": status.LoadBalancer.Ingress}, "conditions": status.Conditions,
	})
}
