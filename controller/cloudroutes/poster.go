package cloudroutes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/cloud"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/internal/wake"
)

// Config configures a Poster.
type Config struct {
	Client    *rest.Config
	Namespace string
	// Node is the unique name of the balancer.
	Node string
	// Duration defaults to the constant of that name.
	Duration time.Duration
	// Patience is how long Close waits until remaining withdrawn routes no longer lead to
	// this node; the default is 3s.
	Patience time.Duration
	Log      *slog.Logger
}

// Poster advertises routes by offering them to the controller. It communicates with the API
// server in the background; Withdrawing returns what is not confirmed yet.
type Poster struct {
	Config
	leases leaseClient
	stop   context.CancelFunc
	life   context.Context
	ended  sync.WaitGroup
	wake   chan struct{}

	mu      sync.Mutex // guards the following
	routes  []route.Route
	out     cloud.Out
	serial  int64 // 0: nothing is offered yet
	text    string
	answer  answered
	since   time.Time // of text
	failure string
	failed  time.Time
}

var _ advertise.Announcer = (*Poster)(nil)

// asking is the interval between checks for the answer.
const asking = 250 * time.Millisecond

// New creates a Poster that offers nothing yet: the offer of a previous process stays valid
// until the first Set, if that is soon enough.
func New(c Config) (*Poster, error) {
	l, err := leases(c.Client, c.Namespace)
	if err != nil {
		return nil, err
	}
	if c.Duration == 0 {
		c.Duration = Duration
	}
	if c.Patience == 0 {
		c.Patience = 3 * time.Second
	}
	p := &Poster{Config: c, leases: l, since: time.Now(), out: cloud.NewOut(time.Now()), wake: make(chan struct{}, 1)}
	p.life, p.stop = context.WithCancel(context.Background())
	p.ended.Go(p.run)
	return p, nil
}

// Set offers the routes in the background. It never fails: failures are retried, and shown
// among the peers.
func (p *Poster) Set(routes []route.Route) error {
	routes = cloud.Carried(routes)
	p.mu.Lock()
	p.routes, p.serial = routes, time.Now().UnixNano()
	p.text, p.since = encode(strconv.FormatInt(p.serial, 36), p.routes), time.Now()
	p.out.Offer(routes, p.since)
	p.mu.Unlock()
	wake.Up(p.wake)
	return nil
}

// Withdrawing returns the prefixes for which the controller has not confirmed that the
// cloud no longer routes them here.
func (p *Poster) Withdrawing() []advertise.Withdrawal {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Withdrawing(p.state())
}

// post writes the Lease.
func (p *Poster) post(ctx context.Context) error {
	p.mu.Lock()
	text, now := p.text, metav1.NowMicro()
	p.mu.Unlock()
	seconds := int32(max(1, p.Duration/time.Second))
	l := coordinationv1.Lease{
		TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{
			Name: nameOf(p.Node), Namespace: p.Namespace,
			Labels: map[string]string{Label: "true"}, Annotations: map[string]string{AnnotationOffer: text},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &p.Node, LeaseDurationSeconds: &seconds, RenewTime: &now},
	}
	body, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("offers: %w", err)
	}
	force := true
	got, err := p.leases.Patch(ctx, l.Name, types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: "fairlead-agent", Force: &force})
	if err != nil {
		why := words(err, p.Namespace)
		p.mu.Lock()
		p.failure, p.failed = why, time.Now()
		p.mu.Unlock()
		return errors.New(why)
	}
	p.mu.Lock()
	p.failure = ""
	p.mu.Unlock()
	p.read(got)
	return nil
}

// read reads the controller's answer from a Lease.
func (p *Poster) read(l *coordinationv1.Lease) {
	var a answered
	if json.Unmarshal([]byte(l.Annotations[AnnotationCloud]), &a) != nil {
		return // no answer yet
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.answer = a; a.Offer == sum(p.text) {
		p.out.Answered(p.routes, a.State)
	}
}

// run writes offers, renews the Lease, sooner after a failure, and checks for the answer
// while one is expected.
func (p *Poster) run() {
	last := time.Now()
	for posted := true; ; {
		pause := time.Until(last.Add(p.Duration / 4))
		switch {
		case len(p.Withdrawing()) > 0 && p.begun():
			pause = min(pause, asking)
		case !posted:
			pause = min(pause, time.Second)
		}
		news := false
		select {
		case <-p.life.Done():
			return
		case <-p.wake:
			news = true
		case <-time.After(pause):
		}
		if !p.begun() {
			last = time.Now()
			continue
		}
		if news || !posted || time.Since(last) >= p.Duration/4 {
			posted, last = p.renew(), time.Now()
		} else {
			p.look()
		}
	}
}

// begun reports whether anything was offered.
func (p *Poster) begun() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.serial != 0
}

// renew writes the Lease, and reports whether that succeeded.
func (p *Poster) renew() bool {
	ctx, cancel := context.WithTimeout(p.life, p.Duration/2)
	defer cancel()
	p.mu.Lock()
	before := p.failure
	p.mu.Unlock()
	err := p.post(ctx)
	if err != nil && p.life.Err() == nil && err.Error() != before {
		p.Log.Warn("cannot renew the offer, will retry", "error", err)
	}
	return err == nil
}

// look reads the controller's answer.
func (p *Poster) look() {
	ctx, cancel := context.WithTimeout(p.life, p.Duration/2)
	defer cancel()
	if l, err := p.leases.Get(ctx, nameOf(p.Node), metav1.GetOptions{}); err == nil {
		p.read(l)
	}
}

// state returns the state of the cloud as the controller reported it. The caller holds
// p.mu.
func (p *Poster) state() cloud.State {
	s := p.answer.State
	if s.Name == "" {
		s.Name = "cloud"
	}
	switch late := time.Since(p.since) > p.Duration; {
	case p.failure != "":
		s.State, s.LastError, s.Since, s.Undone = cloud.Failing, p.failure, p.failed, nil
	case p.answer.Offer == sum(p.text):
	case late:
		s.State, s.Since = "waiting", p.since
		s.LastError = "no controller has processed the offer since " + p.since.UTC().Format(time.RFC3339) + ": run fairlead controller with --cloud, and see its log"
	default:
		s = cloud.Waiting(s.Name, p.since)
	}
	return s
}

// Peers returns the cloud as a peer.
func (p *Poster) Peers() []advertise.Peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return []advertise.Peer{p.state().Peer(len(p.routes))}
}

// Close withdraws everything, waits briefly for confirmation, and stops renewing.
func (p *Poster) Close() error {
	if p.begun() {
		_ = p.Set(nil) // never fails
		p.await()
	}
	p.stop()
	p.ended.Wait()
	return nil
}

// await waits until everything is withdrawn, for a limited time.
func (p *Poster) await() {
	const pace = 10 * time.Millisecond
	for end := time.Now().Add(p.Patience); ; time.Sleep(pace) {
		left := p.Withdrawing()
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			p.Log.Warn("the cloud may still route withdrawn prefixes here", "routes", len(left), "first", left[0].Prefix, "reason", left[0].Reason)
			return
		}
	}
}
