package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
)

// component is who Events come from.
const component = "fairlead-controller"

// Events are for people; where very many Services lack an address at once the
// conditions say so of each, and Events of the first.
const (
	eventsPerSecond = 5
	eventsBurst     = 200
)

// teller makes Events.
type teller struct {
	broadcaster events.EventBroadcaster
	recorder    events.EventRecorder
	// Warnings have a limit of their own, so that what goes well does not use it
	// up.
	limits map[string]flowcontrol.RateLimiter
}

func newTeller(ctx context.Context, k *Controller) *teller {
	b := events.NewBroadcaster(&events.EventSinkImpl{Interface: k.core.EventsV1()})
	if err := b.StartRecordingToSinkWithContext(ctx); err != nil {
		k.Log.Warn("there will be no Events", "why", err)
	}
	limits := map[string]flowcontrol.RateLimiter{}
	for _, kind := range []string{corev1.EventTypeNormal, corev1.EventTypeWarning} {
		limits[kind] = flowcontrol.NewTokenBucketRateLimiter(eventsPerSecond, eventsBurst)
	}
	return &teller{b, b.NewRecorder(k.scheme, component), limits}
}

// tell makes an Event about an object, unless there have been too many.
func (t *teller) tell(about runtime.Object, warn bool, reason, action, message string) {
	kind := corev1.EventTypeNormal
	if warn {
		kind = corev1.EventTypeWarning
	}
	if t.limits[kind].TryAccept() {
		t.recorder.Eventf(about, nil, kind, reason, action, "%s", shorten(message))
	}
}

// shorten keeps within what the API server takes for a note, 1 kB.
func shorten(message string) string {
	const most = 1000
	if len(message) > most {
		return message[:most] + "..."
	}
	return message
}

func (t *teller) close() { t.broadcaster.Shutdown() }
