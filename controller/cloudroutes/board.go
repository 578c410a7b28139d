package cloudroutes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/advertise/cloud"
)

// Board is the leader's side. It must be used by only one goroutine.
type Board struct {
	leases    leaseClient
	namespace string
	// seen has the Leases by name, and when each last changed by the local clock,
	// because the clocks of nodes may be wrong.
	seen  map[string]*seen
	blind bool // the last Read failed
}

type seen struct {
	lease *coordinationv1.Lease
	at    time.Time
}

// NewBoard creates a Board that has seen nothing yet: agents that it finds first count as
// alive.
func NewBoard(config *rest.Config, namespace string) (*Board, error) {
	l, err := leases(config, namespace)
	if err != nil {
		return nil, err
	}
	return &Board{leases: l, namespace: namespace, seen: map[string]*seen{}}, nil
}

// Read returns the offers of the agents that are alive, sorted by node, and deletes the
// Leases of the others.
func (b *Board) Read(ctx context.Context) ([]cloud.Offer, error) {
	list, err := b.leases.List(ctx, metav1.ListOptions{LabelSelector: Label})
	if err != nil {
		b.blind = true
		return nil, errors.New(words(err, b.namespace))
	}
	now, before := time.Now(), b.seen
	b.seen = map[string]*seen{}
	var errs []error
	for i := range list.Items {
		l := &list.Items[i]
		s := &seen{l, now}
		// While reading failed, agents may have been unable to renew too.
		if old := before[l.Name]; old != nil && !b.blind && sameTime(old.lease, l) {
			s.at = old.at
		}
		if now.Sub(s.at) > duration(l) {
			if errs = append(errs, b.bury(ctx, l)); errs[len(errs)-1] == nil {
				continue
			}
		}
		b.seen[l.Name] = s
	}
	b.blind = false
	offers, err := b.offers(now)
	return offers, errors.Join(append(errs, err)...)
}

// bury deletes the Lease of a dead agent, unless it has just been renewed.
func (b *Board) bury(ctx context.Context, l *coordinationv1.Lease) error {
	err := b.leases.Delete(ctx, l.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &l.UID, ResourceVersion: &l.ResourceVersion}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if apierrors.IsConflict(err) {
		return nil // the next Read sees that it is alive
	}
	if err != nil {
		return errors.New(words(err, b.namespace))
	}
	return nil
}

// offers returns the offers of live agents; invalid ones are reported, and do not count.
func (b *Board) offers(now time.Time) ([]cloud.Offer, error) {
	all := []cloud.Offer{}
	var errs []error
	for _, s := range b.seen {
		if now.Sub(s.at) > duration(s.lease) {
			continue // dead, but its deletion failed
		}
		o, err := decode(node(s.lease), s.lease.Annotations[AnnotationOffer])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b cloud.Offer) int { return cmp.Compare(a.Node, b.Node) })
	return all, errors.Join(errs...)
}

// Write writes the state of the cloud to the Leases that the last Read found.
func (b *Board) Write(ctx context.Context, s cloud.State) error {
	var errs []error
	for name, one := range b.seen {
		a := answered{sum(one.lease.Annotations[AnnotationOffer]), s}
		text, err := json.Marshal(a)
		if err != nil {
			return fmt.Errorf("offers: %w", err)
		}
		if one.lease.Annotations[AnnotationCloud] == string(text) {
			continue
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{AnnotationCloud: string(text)}}})
		if err != nil {
			return fmt.Errorf("offers: %w", err)
		}
		_, err = b.leases.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "fairlead-controller"})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, errors.New(words(err, b.namespace)))
		}
	}
	return errors.Join(errs...)
}

func sameTime(a, b *coordinationv1.Lease) bool {
	return a.UID == b.UID && a.Spec.RenewTime != nil && a.Spec.RenewTime.Equal(b.Spec.RenewTime)
}

func node(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return l.Name
	}
	return *l.Spec.HolderIdentity
}

func duration(l *coordinationv1.Lease) time.Duration {
	if l.Spec.LeaseDurationSeconds == nil {
		return Duration
	}
	return time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
}
