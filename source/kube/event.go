package kube

import (
	"context"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/core/event"
	"github.com/fairlead/fairlead/internal/kubeclient"
	"github.com/fairlead/fairlead/source/gateway"
	"github.com/fairlead/fairlead/source/object"
)

// Event is an Event of an object of the cluster (kubectl describe).
type Event struct {
	// About is the object, of a kind that CanDescribe.
	About event.Object
	// Reason is a machine-readable word, Action the action in progress.
	Reason, Action string
	// Note is the message; it is truncated to 1 kB.
	Note string
	Warn bool
}

// The reporting component of Events, and how long FlushEvents takes at most.
const (
	component    = "fairlead.io/agent"
	eventTimeout = 5 * time.Second
)

// Many agents report the same: each creates few Events.
const (
	eventsPerSecond = 1
	eventsBurst     = 50
)

// describable are the kinds of objects with Events.
var describable = map[string]struct {
	group    schema.GroupVersion
	resource string
	client   func(*client) rest.Interface
}{
	kindNode:           {corev1.SchemeGroupVersion, "nodes", func(c *client) rest.Interface { return c.core }},
	object.KindService: {corev1.SchemeGroupVersion, "services", func(c *client) rest.Interface { return c.core }},
	"Gateway":          {gateway.V1, "gateways", func(c *client) rest.Interface { return c.gateway }},
	"Advertisement":    {v1alpha1.GroupVersion, "advertisements", func(c *client) rest.Interface { return c.own }},
	"BGPPeer":          {v1alpha1.GroupVersion, "bgppeers", func(c *client) rest.Interface { return c.own }},
	"AddressPool":      {v1alpha1.GroupVersion, "addresspools", func(c *client) rest.Interface { return c.own }},
}

// CanDescribe reports whether objects of a kind have Events.
func CanDescribe(kind string) bool { return describable[kind].resource != "" }

// RecordEvent creates an Event in the background, if the object exists. There is a limit per
// second; Events wait for an unreachable API server.
func (s *Source) RecordEvent(e Event) {
	s.eventsMu.Lock()
	defer s.eventsMu.Unlock()
	if s.events == nil {
		s.events = kubeclient.NewRecorder(s.client.events, s.config.Log, kubeclient.Options{
			PerSecond: eventsPerSecond, Burst: eventsBurst, Resolve: (&finder{client: s.client}).find,
		})
	}
	s.events.Record(kubeclient.Event{
		About:      corev1.ObjectReference{Kind: e.About.Kind, Namespace: e.About.Namespace, Name: e.About.Name},
		Controller: component, Instance: s.config.Node, Reason: e.Reason, Action: e.Action, Note: e.Note, Warn: e.Warn,
	})
}

// FlushEvents waits for pending Events, but not for long, and ends recording.
func (s *Source) FlushEvents() {
	s.eventsMu.Lock()
	defer s.eventsMu.Unlock()
	if s.events != nil {
		s.events.Finish(eventTimeout)
	}
}

// finder finds the UIDs of objects, and remembers the last ones for a while.
type finder struct {
	client *client
	found  map[corev1.ObjectReference]known
}

type known struct {
	corev1.ObjectReference
	at time.Time
}

// Limits of a finder.
const (
	maxFound = 1000
	foundFor = time.Minute
)

// find returns the complete reference of an object, or false if it does not exist. It
// needs no permission but to list objects, which an agent has.
func (f *finder) find(ctx context.Context, o corev1.ObjectReference) (corev1.ObjectReference, bool, error) {
	if k, ok := f.found[o]; ok && time.Since(k.at) < foundFor {
		return k.ObjectReference, true, nil
	}
	kind, ok := describable[o.Kind]
	if !ok {
		return o, false, nil
	}
	options := metav1.ListOptions{FieldSelector: "metadata.name=" + o.Name}
	text, err := kind.client(f.client).Get().NamespaceIfScoped(o.Namespace, o.Namespace != "").Resource(kind.resource).
		VersionedParams(&options, metav1.ParameterCodec).
		SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").Do(ctx).Raw()
	var list metav1.PartialObjectMetadataList
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if apierrors.IsNotFound(err) || err == nil && len(list.Items) == 0 {
		return o, false, nil
	}
	if err != nil {
		return o, false, err
	}
	full := o
	full.APIVersion, full.UID = kind.group.String(), list.Items[0].UID
	if len(f.found) >= maxFound || f.found == nil {
		f.found = map[corev1.ObjectReference]known{}
	}
	f.found[o] = known{full, time.Now()}
	return full, true, nil
}
