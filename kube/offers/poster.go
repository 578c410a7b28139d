package offers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/announce"
	"github.com/fairlead/fairlead/announce/cloud"
)

// Config is what a Poster is told.
type Config struct {
	Client    *rest.Config
	Namespace string
	// Node is the name of the balancer; no two have the same.
	Node string
	// Duration is by default the constant of that name.
	Duration time.Duration
	// Patience is how long Set waits until what it withdraws is led here no more;
	// by default 3s. Who waits longer keeps the rest of the agent from its work.
	Patience time.Duration
	Log      *slog.Logger
}

// Poster announces by offering routes to the controller.
type Poster struct {
	Config
	leases leaseClient
	stop   context.CancelFunc
	life   context.Context
	ended  sync.WaitGroup

	mu      sync.Mutex // of what follows
	routes  []announce.Route
	serial  int64 // 0: nothing is offered yet
	text    string
	answer  answered
	since   time.Time // of text
	failure string
	failed  time.Time
}

var _ announce.Announcer = (*Poster)(nil)

// asking is the pause between looks at the answer.
const asking = 250 * time.Millisecond

// New makes a Poster that offers nothing yet: what its predecessor has offered
// stands until the first Set, if that is soon enough.
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
	p := &Poster{Config: c, leases: l, since: time.Now()}
	p.life, p.stop = context.WithCancel(context.Background())
	p.ended.Go(p.renew)
	return p, nil
}

// Set offers the routes. Where some are withdrawn it waits, for a while, until
// the controller has had the cloud lead them here no more. It never fails: what
// cannot be offered now is offered later, and told among the peers.
func (p *Poster) Set(routes []announce.Route) error {
	routes = cloud.Carried(routes)
	p.mu.Lock()
	withdraws := slices.ContainsFunc(p.routes, func(r announce.Route) bool { return !slices.Contains(routes, r) })
	p.routes, p.serial = routes, time.Now().UnixNano()
	p.text, p.since = encode(strconv.FormatInt(p.serial, 36), p.routes), time.Now()
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(p.life, p.Patience)
	defer cancel()
	posted := p.post(ctx) == nil
	for withdraws && !p.isAnswered() {
		select {
		case <-ctx.Done():
			p.Log.Warn("the cloud may still lead withdrawn routes here: no controller has answered", "waited", p.Patience)
			return nil
		case <-time.After(asking):
		}
		if !posted {
			posted = p.post(ctx) == nil
		} else if l, err := p.leases.Get(ctx, nameOf(p.Node), metav1.GetOptions{}); err == nil {
			p.read(l)
		}
	}
	return nil
}

func (p *Poster) isAnswered() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.answer.Offer == sum(p.text)
}

// post writes the Lease anew.
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

// read takes the controller's answer from a Lease.
func (p *Poster) read(l *coordinationv1.Lease) {
	var a answered
	if json.Unmarshal([]byte(l.Annotations[AnnotationCloud]), &a) != nil {
		return // there is none yet
	}
	p.mu.Lock()
	p.answer = a
	p.mu.Unlock()
}

// renew says again and again that this agent lives, sooner where that failed.
func (p *Poster) renew() {
	pause := p.Duration / 4
	for {
		select {
		case <-p.life.Done():
			return
		case <-time.After(pause):
		}
		p.mu.Lock()
		begun := p.serial != 0
		p.mu.Unlock()
		if !begun {
			continue
		}
		ctx, cancel := context.WithTimeout(p.life, p.Duration/2)
		pause = p.Duration / 4
		if err := p.post(ctx); err != nil && p.life.Err() == nil {
			pause = min(pause, time.Second)
			p.Log.Warn("cannot renew the offer; trying again", "why", err, "in", pause)
		}
		cancel()
	}
}

// Peers is the cloud, as the controller tells of it.
func (p *Poster) Peers() []announce.Peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.answer.State
	if s.Name == "" {
		s.Name = "cloud"
	}
	switch late := time.Since(p.since) > p.Duration; {
	case p.failure != "":
		s.State, s.LastError, s.Since = cloud.Failing, p.failure, p.failed
	case p.answer.Offer == sum(p.text):
	case late:
		s.State, s.Since = "waiting", p.since
		s.LastError = "no controller answers what is offered since " + p.since.UTC().Format(time.RFC3339) + ": run fairlead controller with --cloud, and see its log"
	default:
		s = cloud.Waiting(s.Name, p.since)
	}
	return []announce.Peer{s.Peer(len(p.routes))}
}

// Close withdraws what is offered, and renews it no more.
func (p *Poster) Close() error {
	var err error
	p.mu.Lock()
	offers := len(p.routes) > 0
	p.mu.Unlock()
	if offers {
		err = p.Set(nil)
	}
	p.stop()
	p.ended.Wait()
	return err
}
