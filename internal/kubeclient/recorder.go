package kubeclient

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/fairlead/fairlead/internal/sleep"
)

// Limits of a Recorder. Events are for people: when very much happens at the same time, the
// first ones are sufficient.
const (
	eventsPerSecond = 5
	eventsBurst     = 200
	eventsQueued    = 1000
	// seriesFor is how long a repeated Event counts as the same one.
	seriesFor = 6 * time.Minute
	// eventPause is the pause between attempts while the API server is unreachable.
	eventPause = 2 * time.Second
)

// Recorder creates Events in the background, in order. It waits for an unreachable API
// server, and drops what does not fit into its queue.
type Recorder struct {
	client rest.Interface
	log    *slog.Logger
	// limits are those of ordinary Events and of warnings, so that ordinary ones cannot use
	// up the limit of warnings.
	limits map[bool]flowcontrol.RateLimiter
	queue  chan Event
	stop   context.CancelFunc
	ended  sync.WaitGroup
	recent map[Event]*series
	finish chan struct{}
	// resolve returns the object of an Event, or false if it does not exist; nil if Events have
	// complete objects.
	resolve func(context.Context, corev1.ObjectReference) (corev1.ObjectReference, bool, error)
}

// Options of a Recorder. The zero value has the defaults.
type Options struct {
	// PerSecond and Burst limit Events, and warnings separately.
	PerSecond float32
	Burst     int
	// Resolve completes the object of an Event, or returns false if it does not exist. It is
	// called by the goroutine that creates Events. May be nil.
	Resolve func(context.Context, corev1.ObjectReference) (corev1.ObjectReference, bool, error)
}

// series is an Event that may be repeated.
type series struct {
	name  string
	count int
	last  time.Time
}

// NewRecorder starts a Recorder, which runs until Close. The client is for
// events.k8s.io/v1.
func NewRecorder(client rest.Interface, log *slog.Logger, o Options) *Recorder {
	r := &Recorder{client: client, log: log, limits: map[bool]flowcontrol.RateLimiter{}, queue: make(chan Event, eventsQueued), recent: map[Event]*series{},
		finish: make(chan struct{}), resolve: o.Resolve}
	for _, warn := range []bool{false, true} {
		r.limits[warn] = flowcontrol.NewTokenBucketRateLimiter(cmp.Or(o.PerSecond, eventsPerSecond), cmp.Or(o.Burst, eventsBurst))
	}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	r.ended.Go(func() { r.run(ctx) })
	return r
}

// Record queues an Event, unless there have been too many. It does not wait.
func (r *Recorder) Record(e Event) {
	if !r.limits[e.Warn].TryAccept() {
		return
	}
	select {
	case r.queue <- e:
	default:
	}
}

// Close stops the Recorder. What is still queued is lost.
func (r *Recorder) Close() {
	r.stop()
	r.ended.Wait()
}

// Finish creates what is queued, for at most limit, and stops the Recorder.
func (r *Recorder) Finish(limit time.Duration) {
	defer time.AfterFunc(limit, r.stop).Stop()
	close(r.finish)
	r.ended.Wait()
	r.stop()
}

func (r *Recorder) run(ctx context.Context) {
	for finishing := false; !finishing; {
		select {
		case <-ctx.Done():
			return
		case e := <-r.queue:
			r.post(ctx, e)
		case <-r.finish:
			finishing = true
		}
	}
	for ctx.Err() == nil && len(r.queue) > 0 {
		r.post(ctx, <-r.queue)
	}
}

// post creates an Event, or counts it if the same was created recently, and retries until
// the API server responds.
func (r *Recorder) post(ctx context.Context, e Event) {
	for ctx.Err() == nil {
		err := r.try(ctx, e)
		if err == nil || ctx.Err() != nil {
			return
		}
		var answer apierrors.APIStatus
		if errors.As(err, &answer) { // another attempt would be rejected too
			r.log.Warn("failed to create an Event", "object", e.About.Name, "reason", e.Reason, "note", e.Note, "error", err)
			return
		}
		sleep.For(ctx, eventPause)
	}
}

func (r *Recorder) try(ctx context.Context, e Event) error {
	if r.resolve != nil {
		about, found, err := r.resolve(ctx, e.About)
		if err != nil || !found {
			return err
		}
		e.About = about
	}
	now, key := time.Now(), e
	key.About.ResourceVersion = ""
	maps.DeleteFunc(r.recent, func(_ Event, s *series) bool { return now.Sub(s.last) > seriesFor })
	if s := r.recent[key]; s != nil {
		err := r.recur(ctx, e, s.name, s.count+1)
		if err == nil {
			s.count, s.last = s.count+1, now
		}
		if !apierrors.IsNotFound(err) { // the server has deleted it
			return err
		}
	}
	name, err := PostEvent(ctx, r.client, e)
	if err == nil {
		r.recent[key] = &series{name: name, count: 1, last: now}
	}
	return err
}

// recur updates the count of an Event.
func (r *Recorder) recur(ctx context.Context, e Event, name string, count int) error {
	patch, err := json.Marshal(map[string]any{"series": map[string]any{"count": count, "lastObservedTime": metav1.NowMicro()}})
	if err != nil {
		return err
	}
	return r.client.Patch(types.MergePatchType).Namespace(e.namespace()).Resource("events").Name(name).Body(patch).Do(ctx).Error()
}
