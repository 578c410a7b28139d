package kube

import (
	"cmp"
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/source/crd"
)

const bgpSessions = "bgpsessions"

// downPace is how often a session that is not established is written at most: each attempt
// changes its state, and may fail for another reason.
const downPace = time.Minute

// sessions are the BGPSessions of this load balancer. They are used by one goroutine.
type sessions struct {
	// written are those that exist, by name; nil if they have not been read.
	written map[string]writtenSession
	failed  string // last logged
}

type writtenSession struct {
	v1alpha1.BGPSession
	at time.Time // zero if it was read
}

// ReportSessions makes the BGPSessions of this load balancer those of peers. What has not
// changed is not written. Failures are logged; the next call retries.
func (s *Source) ReportSessions(ctx context.Context, peers []advertise.Peer) {
	r, failed := &s.reporter.sessions, ""
	err := s.writeSessions(ctx, peers)
	if apierrors.IsNotFound(err) { // the resource or the namespace, and with it what was written
		r.written = nil
	}
	if err != nil {
		failed = err.Error()
	}
	s.complain(ctx, &r.failed, failed, "failed to report BGP sessions to the API server, will retry")
}

func (s *Source) writeSessions(ctx context.Context, peers []advertise.Peer) error {
	r := &s.reporter.sessions
	if known, err := s.readSessions(ctx); !known {
		return err
	}
	owners, err := s.owners(ctx)
	if err != nil {
		return err
	}
	now := map[string]bool{}
	for _, p := range peers {
		if p.Unconfigured {
			continue
		}
		o := crd.SessionOf(s.reportsAs(), p, owners)
		o.Namespace = s.namespace()
		now[o.Name] = true
		if was, ok := r.written[o.Name]; ok && was.current(&o) {
			continue
		}
		if failed := s.applyOwn(ctx, bgpSessions, &o); failed != nil {
			err = cmp.Or(err, failed)
			continue
		}
		r.written[o.Name] = writtenSession{o, time.Now()}
	}
	for name := range r.written {
		if now[name] {
			continue
		}
		failed := s.client.own.Delete().Namespace(s.namespace()).Resource(bgpSessions).Name(name).Do(ctx).Error()
		if failed != nil && !apierrors.IsNotFound(failed) {
			err = cmp.Or(err, failed)
			continue
		}
		delete(r.written, name)
	}
	return err
}

// readSessions reads those that a predecessor has left, once. They are not known if the
// cluster lacks the resource.
func (s *Source) readSessions(ctx context.Context) (known bool, err error) {
	r := &s.reporter.sessions
	if r.written != nil {
		return true, nil
	}
	var list v1alpha1.BGPSessionList
	err = s.client.own.Get().Namespace(s.namespace()).Resource(bgpSessions).
		VersionedParams(&metav1.ListOptions{LabelSelector: crd.SessionsOn(s.reportsAs())}, metav1.ParameterCodec).
		Do(ctx).Into(&list)
	if apierrors.IsNotFound(err) {
		s.awaitResource(bgpSessions)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	r.written = map[string]writtenSession{}
	for _, o := range list.Items {
		if o.Status.Node == s.reportsAs() {
			r.written[o.Name] = writtenSession{BGPSession: o}
		}
	}
	return true, nil
}

// current reports whether an object need not be written again. It completes now: a session
// that stays down is down since the first failed attempt.
func (w *writtenSession) current(now *v1alpha1.BGPSession) bool {
	age := time.Since(w.at)
	if w.Status.State != advertise.Established && now.Status.State != advertise.Established {
		now.Status.Since = w.Status.Since
		if age < downPace && w.Status.LastError != "" {
			return equality.Semantic.DeepEqual(w.OwnerReferences, now.OwnerReferences)
		}
	}
	return age < reportAgain && equality.Semantic.DeepEqual(w.Status, now.Status) && equality.Semantic.DeepEqual(w.OwnerReferences, now.OwnerReferences)
}
