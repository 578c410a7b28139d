package controller

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead/fairlead/controller/elect"
	"github.com/fairlead/fairlead/internal/kubeclient"
)

// stand waits for the Lease, leads, and returns when it has lost it and everything of its
// term has ended.
func (k *Controller) stand(ctx context.Context) {
	lease := k.Namespace + "/" + k.Lease
	said := ""
	c := &elect.Candidate{
		Leases:    kubeclient.Of[*coordinationv1.Lease, *coordinationv1.LeaseList](k.api[coordinationv1.SchemeGroupVersion], "leases", k.Namespace),
		Namespace: k.Namespace, Name: k.Lease, Identity: k.Identity, Duration: k.LeaseDuration,
		Asked: func(verb string, err error) {
			why := ""
			if err != nil && !apierrors.IsConflict(err) {
				why = words(err, verb, "leases", k.Namespace)
			}
			if why != said && why != "" {
				k.Log.Warn("failed to acquire the Lease, will retry", "lease", lease, "error", why)
			}
			said = why
			k.unasked.Store(&why)
		},
		Elected: func(identity string) { k.Log.Info("another controller is the leader", "identity", identity) },
	}
	c.Run(ctx, func(term context.Context, leading func() error) {
		k.Log.Info("leading", "lease", lease, "identity", k.Identity)
		k.leads.Store(true)
		defer k.leads.Store(false)
		k.lead(term, leading)
		k.Log.Info("lost leadership", "lease", lease)
	})
}

// words explains an error of the API server, and how to fix it.
func words(err error, verb, resource, namespace string) string {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("no right to %s %s: bind the ClusterRole fairlead-controller (deploy/manifests/rbac.yaml): %v", verb, resource, err)
	case apierrors.IsNotFound(err) && namespace != "":
		return fmt.Sprintf("namespace %s does not exist: create it, or use another: %v", namespace, err)
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("the resource %s does not exist: kubectl apply -f deploy/crds: %v", resource, err)
	}
	return err.Error()
}
