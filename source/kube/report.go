package kube

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/internal/shorten"
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

// reporter writes this node's entries in the status of objects. It is used by one goroutine.
type reporter struct {
	written map[Reported]Report
	failed  string // last logged
}

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
			entries = append(entries, v1alpha1.NodeState{Node: s.config.Node, Ready: report.Ready, Message: shorten.Text(report.Message, shorten.EventNote)})
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
	force, manager := true, fmt.Sprintf("fairlead-agent-%x", sha256.Sum224([]byte(s.config.Node)))
	err = s.client.own.Patch(types.ApplyPatchType).Resource(describable[o.Kind].resource).Name(o.Name).SubResource("status").
		VersionedParams(&metav1.PatchOptions{FieldManager: manager, Force: &force}, metav1.ParameterCodec).Body(body).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return nil // it has been deleted, or its resource has no status yet
	}
	return err
}
