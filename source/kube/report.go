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
	"k8s.io/apimachinery/pkg/fields"
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

// reporter writes this node's entries in the status of objects, its NodeReport, its
// NodeHeartbeat and its BGPSessions. It is used by one goroutine.
type reporter struct {
	written map[Reported]Report
	failed  string // last logged

	// services is the last NodeReport that was written, at a time; nil before the first one.
	services       *v1alpha1.NodeReportStatus
	servicesAt     time.Time
	servicesFailed string // last logged

	renewed       time.Time // when the NodeHeartbeat was, if it was
	renewalFailed string    // last logged

	sessions sessions
	pod      *metav1.OwnerReference // nil if unknown
}

// reportAgain is when a NodeReport is written although nothing has changed, in case that
// somebody deleted it. That costs the API server no write.
const reportAgain = 10 * time.Minute

const nodeReports, nodeHeartbeats = "nodereports", "nodeheartbeats"

// A NodeHeartbeat is renewed every renewEvery, and valid for heartbeatDuration: a load
// balancer whose renewals fail twice still counts as reporting.
const (
	renewEvery        = time.Minute
	heartbeatDuration = 150 * time.Second
)

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
	s.complain(ctx, &r.failed, failed, "failed to report to the API server, will retry")
}

// complain logs an error that differs from the last one.
func (s *Source) complain(ctx context.Context, last *string, failed, message string) {
	if failed != "" && failed != *last && ctx.Err() == nil {
		s.config.Log.Warn(message, "error", failed)
	}
	*last = failed
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

// ReportServices writes the NodeReport of this load balancer if it has changed. Failures are
// logged; the next call retries.
func (s *Source) ReportServices(ctx context.Context, all []source.Outcome) {
	now := crd.ReportOf(s.reportsAs(), all)
	r := &s.reporter
	if r.services != nil && reflect.DeepEqual(*r.services, now) && time.Since(r.servicesAt) < reportAgain {
		return
	}
	err := s.applyOwn(ctx, nodeReports, &v1alpha1.NodeReport{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeReport"},
		ObjectMeta: metav1.ObjectMeta{Name: crd.ReportName(s.reportsAs()), OwnerReferences: s.nodeOwns()}, Status: now,
	})
	if err == nil {
		r.services, r.servicesAt = &now, time.Now()
	}
	s.complain(ctx, &r.servicesFailed, failure(err), "failed to report the state of Services to the API server, will retry")
}

// Renew renews the NodeHeartbeat of this load balancer once a minute, as long as all reports
// succeed. Failures are logged; the next call retries.
func (s *Source) Renew(ctx context.Context) {
	r := &s.reporter
	if r.failed != "" || r.servicesFailed != "" || time.Since(r.renewed) < renewEvery {
		return
	}
	now := time.Now()
	owners, err := s.owners(ctx)
	if err == nil {
		err = s.applyOwn(ctx, nodeHeartbeats, &v1alpha1.NodeHeartbeat{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeHeartbeat"},
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace(), Name: crd.ReportName(s.reportsAs()), OwnerReferences: owners},
			Status:     v1alpha1.NodeHeartbeatStatus{Node: s.reportsAs(), RenewTime: metav1.NewTime(now), DurationSeconds: int32(heartbeatDuration.Seconds())},
		})
	}
	if err == nil {
		if !r.renewed.IsZero() && now.Sub(r.renewed) > heartbeatDuration {
			r.sessions.written = nil // the controller has marked them
		}
		r.renewed = now
	}
	s.complain(ctx, &r.renewalFailed, failure(err), "failed to renew the heartbeat, will retry")
}

// applyOwn writes an object of this load balancer.
func (s *Source) applyOwn(ctx context.Context, resource string, o metav1.Object) error {
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	force := true
	return s.client.own.Patch(types.ApplyPatchType).NamespaceIfScoped(o.GetNamespace(), o.GetNamespace() != "").Resource(resource).Name(o.GetName()).
		VersionedParams(&metav1.PatchOptions{FieldManager: component, Force: &force}, metav1.ParameterCodec).Body(body).Do(ctx).Error()
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

// owners returns the object with which the cluster deletes what this load balancer writes to its
// namespace: its Pod if it is a dedicated one, or else its Node.
func (s *Source) owners(ctx context.Context) ([]metav1.OwnerReference, error) {
	r := &s.reporter
	if s.config.Pod != "" && r.pod == nil {
		var list corev1.PodList
		err := s.client.core.Get().Namespace(s.namespace()).Resource("pods").
			VersionedParams(&metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, s.config.Pod).String()}, metav1.ParameterCodec).
			Do(ctx).Into(&list)
		if err != nil {
			return nil, err
		}
		for _, p := range list.Items {
			r.pod = &metav1.OwnerReference{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Pod", Name: p.Name, UID: p.UID}
		}
	}
	if r.pod != nil {
		return []metav1.OwnerReference{*r.pod}, nil
	}
	return s.nodeOwns(), nil
}

// RemoveServices deletes the NodeReport and the NodeHeartbeat of this load balancer, which
// stops.
func (s *Source) RemoveServices(ctx context.Context) {
	r := &s.reporter
	name := crd.ReportName(s.reportsAs())
	if r.services != nil {
		err := s.client.own.Delete().Resource(nodeReports).Name(name).Do(ctx).Error()
		r.services = nil
		s.complain(ctx, &r.servicesFailed, failure(err), "failed to remove the report of Services from the API server")
	}
	if !r.renewed.IsZero() {
		err := s.client.own.Delete().Namespace(s.namespace()).Resource(nodeHeartbeats).Name(name).Do(ctx).Error()
		r.renewed = time.Time{}
		s.complain(ctx, &r.renewalFailed, failure(err), "failed to remove the heartbeat")
	}
}

// failure returns the text of an error, unless the resource or the object does not exist.
func failure(err error) string {
	if err == nil || apierrors.IsNotFound(err) {
		return ""
	}
	return err.Error()
}
