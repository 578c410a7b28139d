package kube

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/source/crd"
	"github.com/fairlead/fairlead/source/object"
)

// Names of the resource and its kind.
const quarantines, kindQuarantine = "quarantines", "Quarantine"

func newQuarantines(s *Source) *store[*v1alpha1.Quarantine] {
	return own(s, kindQuarantine, func(in *v1alpha1.Quarantine) *v1alpha1.Quarantine {
		return &v1alpha1.Quarantine{ObjectMeta: slim(&in.ObjectMeta), Spec: in.Spec}
	}, s.wakeUp)
}

// followQuarantines returns the function that fills the store.
func (s *Source) followQuarantines() func(context.Context) {
	r := resource{client: s.client.own, name: quarantines, own: func() runtime.Object { return &v1alpha1.QuarantineList{} }}
	return follow(s, r, s.quarantines)
}

// quarantinesRead reports whether it is known which backends are drained, or known to be
// forbidden: until then, one of them could get new flows. The caller holds the lock.
func (s *Source) quarantinesRead() bool {
	return s.quarantines.loaded || s.routing.forbidden[quarantines]
}

// quarantinesNow returns the backends that operators drain. The caller holds the lock.
func (s *Source) quarantinesNow() []service.Quarantine {
	valid, wrong := crd.QuarantinesOf(slices.Collect(maps.Values(s.quarantines.held)))
	s.problems.put(s.problems.kinds, object.Key{Kind: kindQuarantine}, problemsOf(wrong))
	return valid
}
