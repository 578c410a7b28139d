package kube

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/internal/shorten"
	"github.com/fairlead/fairlead/source"
	"github.com/fairlead/fairlead/source/crd"
)

// Report is the state of a BGPPeer or an Advertisement on this node.
type Report struct {
	// Ready means that the session is established, or all prefixes are advertised.
	Ready bool
	// Message is the state in words. It should change only with the state.
	Message string
}

// Reported identifies the object of a Report.
type Reported struct{ Kind, Name string }

// reporter writes this node's entries in the status of objects, and its NodeReport. It is used by one goroutine.
type reporter struct {
	written map[Reported]Report
	failed  string // last logged

	// services is the last NodeReport that was written, at a time; nil before the first one.
	services       *v1alpha1.NodeReportStatus
	servicesAt     time.Time
	servicesFailed string // last logged

	sessions sessions
}

// reportAgain is when a NodeReport is written although nothing has changed, in case that
// somebody deleted it. That costs the API server no write.
const reportAgain = 10 * time.Minute

// Report makes the entries of this node those that are given. Entries that have not changed
// are not written. Failures are logged; the next call retries.
func (s *Source) Report(ctx context.Context, now map[Reported]Report) {
	r := &s.reporter
	if r.written == nil { // a predecessor may have left entries
		r.written = map[Reported]Report{}
		for _, o := range s.reportable() {
			r.written[o] = Report{Message: "unknown"}
		}
	}
	all := maps.Clone(r.written)
	maps.Copy(all, now)
	failed := ""
	for o := range all {
		report, is := now[o]
		if was, ok := r.written[o]; ok && is && was == report {
			continue
		}
		entries := []v1alpha1.NodeState{}
		if is {
			entries = append(entries, v1alpha1.NodeState{Node: s.reportsAs(), Ready: report.Ready, Message: shorten.Text(report.Message, shorten.EventNote)})
		}
		if err := s.writeEntries(ctx, o, entries); err != nil {
			failed = err.Error()
			continue
		}
		if is {
			r.written[o] = report
		} else {
			delete(r.written, o)
		}
	}
	if failed != "" && failed != r.failed && ctx.Err() == nil {
		s.config.Log.Warn("failed to report to the API server, will retry", "error", failed)
	}
	r.failed = failed
}

// reportable returns the objects that have a status with nodes.
func (s *Source) reportable() (all []Reported) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.routing.peers.held {
		all = append(all, Reported{kindPeer, id.Name})
	}
	for id := range s.routing.advertisements.held {
		all = append(all, Reported{kindAdvertisement, id.Name})
	}
	return all
}

// reportsAs is the name in entries.
func (s *Source) reportsAs() string {
	if s.config.Pod != "" {
		return s.config.Node + "/" + s.config.Pod
	}
	return s.config.Node
}

// writeEntries makes the entries of this node, and no others, those that are given.
func (s *Source) writeEntries(ctx context.Context, o Reported, entries []v1alpha1.NodeState) error {
	body, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": o.Kind, "metadata": map[string]any{"name": o.Name},
		"status": map[string]any{"nodes": entries},
	})
	if err != nil {
		return err
	}
	// A field manager per node: applying a list replaces only entries of the same manager. Its
	// name is limited to 128 bytes, that of a node is not.
	force, manager := true, fmt.Sprintf("fairlead-agent-%x", sha256.Sum224([]byte(s.reportsAs())))
	err = s.client.own.Patch(types.ApplyPatchType).Resource(describable[o.Kind].resource).Name(o.Name).SubResource("status").
		VersionedParams(&metav1.PatchOptions{FieldManager: manager, Force: &force}, metav1.ParameterCodec).Body(body).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return nil // it has been deleted, or its resource has no status yet
	}
	return err
}

// ReportServices writes the NodeReport of this load balancer if it has changed. Failures are logged;
// the next call retries.
func (s *Source) ReportServices(ctx context.Context, all []source.Outcome) {
	now := crd.ReportOf(s.reportsAs(), all)
	r := &s.reporter
	if r.services != nil && reflect.DeepEqual(*r.services, now) && time.Since(r.servicesAt) < reportAgain {
		return
	}
	name := crd.ReportName(s.reportsAs())
	body, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "NodeReport", "status": now,
		"metadata": metav1.ObjectMeta{Name: name, OwnerReferences: s.nodeOwns()},
	})
	if err == nil {
		force := true
		err = s.client.own.Patch(types.ApplyPatchType).Resource("nodereports").Name(name).
			VersionedParams(&metav1.PatchOptions{FieldManager: component, Force: &force}, metav1.ParameterCodec).Body(body).Do(ctx).Error()
	}
	s.reportedServices(ctx, &now, err)
}

// nodeOwns returns the reference to this node in what the cluster deletes with it, or none if
// the Node is unknown.
func (s *Source) nodeOwns() []metav1.OwnerReference {
	n, ok := s.Node()
	if !ok || n.uid == "" {
		return nil
	}
	return []metav1.OwnerReference{{APIVersion: corev1.SchemeGroupVersion.String(), Kind: kindNode, Name: n.Name, UID: n.uid}}
}

// RemoveServices deletes the NodeReport of this load balancer, which stops.
func (s *Source) RemoveServices(ctx context.Context) {
	if s.reporter.services == nil {
		return
	}
	err := s.client.own.Delete().Resource("nodereports").Name(crd.ReportName(s.reportsAs())).Do(ctx).Error()
	s.reportedServices(ctx, nil, err)
}

func (s *Source) reportedServices(ctx context.Context, now *v1alpha1.NodeReportStatus, err error) {
	r, failed := &s.reporter, ""
	switch {
	case err == nil:
		r.services, r.servicesAt = now, time.Now()
	case apierrors.IsNotFound(err): // the resource, or the report
	default:
		failed = err.Error()
	}
	if failed != "" && failed != r.servicesFailed && ctx.Err() == nil {
		s.config.Log.Warn("failed to report the state of Services to the API server, will retry", "error", failed)
	}
	r.servicesFailed = failed
}
