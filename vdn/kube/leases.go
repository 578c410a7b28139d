package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/vdn"
)

const (
	// leasesResource is the resource of NetworkLeases.
	leasesResource = "networkleases"
	// labelNetwork has the network of an attachment, so that kubectl can select by network.
	labelNetwork = "fairlead.io/network"
)

// podOf returns the pod of an attachment, if its owner is a valid name of a pod.
func podOf(a vdn.Attachment) (namespace, name string, ok bool) {
	namespace, name, _ = strings.Cut(a.Owner, "/")
	return namespace, name, validation.ValidateNamespaceName(namespace, false) == nil && validation.NameIsDNSSubdomain(name, false) == nil
}

// nameOf returns a name that is unique to an attachment and begins with its pod's name.
func nameOf(a vdn.Attachment, pod string) string {
	sum := sha256.Sum256([]byte(a.ID))
	const most = 253 - 11 // the maximum length of an object name, minus the suffix
	return strings.TrimRight(pod[:min(len(pod), most)], ".-") + "-" + hex.EncodeToString(sum[:5])
}

// attachmentOf returns the NetworkLease object of an attachment, or nil if its owner
// is unknown.
func (s *Sync) attachmentOf(a vdn.Attachment) *v1alpha1.NetworkLease {
	namespace, name, ok := podOf(a)
	if !ok {
		return nil
	}
	o := &v1alpha1.NetworkLease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: nameOf(a, name), Labels: map[string]string{labelNetwork: a.Network}},
		Status: v1alpha1.NetworkLeaseStatus{
			ID: a.ID, Network: a.Network, Pod: name, Interface: a.Interface, Node: a.Node, Device: a.Device, MAC: a.MAC,
			Phase: string(a.Phase), Since: metav1.NewTime(time.Unix(a.Since, 0).UTC()),
		},
	}
	for _, p := range a.Addresses {
		o.Status.Addresses = append(o.Status.Addresses, p.String())
	}
	if pod := s.pod(namespace, name); pod != nil && isPodOf(pod, a) {
		o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name, UID: pod.UID}}
	}
	return o
}

// pod returns a pod as last read.
func (s *Sync) pod(namespace, name string) *metav1.PartialObjectMetadata {
	o, there, err := s.pods.GetStore().GetByKey(namespace + "/" + name)
	if !there || err != nil {
		return nil
	}
	return o.(*metav1.PartialObjectMetadata)
}

// showAttachments makes the NetworkLeases in the cluster match the store.
func (s *Sync) showAttachments(ctx context.Context) (wrong error) {
	stands := map[string]*v1alpha1.NetworkLease{}
	for _, o := range all[*v1alpha1.NetworkLease](s.attachments) {
		stands[o.Namespace+"/"+o.Name] = o
	}
	for _, a := range s.Store.Attachments("", "") {
		o := s.attachmentOf(a)
		if o == nil {
			continue
		}
		key := o.Namespace + "/" + o.Name
		was := stands[key]
		delete(stands, key)
		wrong = errors.Join(wrong, s.show(ctx, was, o))
	}
	for _, o := range stands {
		err := s.own.Delete().Namespace(o.Namespace).Resource(leasesResource).Name(o.Name).Do(ctx).Error()
		if !apierrors.IsNotFound(err) {
			wrong = errors.Join(wrong, err)
		}
	}
	return wrong
}

// show creates a NetworkLease, or updates it if it differs.
func (s *Sync) show(ctx context.Context, was, o *v1alpha1.NetworkLease) error {
	if was == nil {
		err := s.own.Post().Namespace(o.Namespace).Resource(leasesResource).Body(o).Do(ctx).Error()
		switch {
		case apierrors.IsAlreadyExists(err): // the watch will deliver it
			return nil
		case apierrors.IsNotFound(err), apierrors.HasStatusCause(err, "NamespaceTerminating"):
			return nil // its namespace is gone or terminating
		}
		return err
	}
	if equality.Semantic.DeepEqual(was.Status, o.Status) && equality.Semantic.DeepEqual(was.OwnerReferences, o.OwnerReferences) &&
		equality.Semantic.DeepEqual(was.Labels, o.Labels) {
		return nil
	}
	o.ResourceVersion = was.ResourceVersion
	err := s.own.Put().Namespace(o.Namespace).Resource(leasesResource).Name(o.Name).Body(o).Do(ctx).Error()
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // the watch will deliver it
	}
	return err
}
