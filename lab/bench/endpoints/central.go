package endpoints

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/kube"
	source "github.com/fairlead/fairlead/source/kube"
)

// central measures what clients of the API server cost: one is a central load balancer,
// many are the proxies of that many nodes. Then it measures the additional hop.
func (e *experiment) central(ctx context.Context, c *controlPlane) error {
	e.Note("each client is Fairlead's own source for the service proxy, with credentials of its own, and reads %d Services with 10 endpoints each, written to etcd directly", e.Known)
	for round := range e.Rounds {
		for _, n := range e.Nodes {
			e.logf("%s, round %d of %d", clientsName(n), round+1, e.Rounds)
			if err := e.clients(ctx, c, n); err != nil {
				return fmt.Errorf("%d clients: %w", n, err)
			}
		}
	}
	return e.hop(ctx)
}

func clientsName(n int) string {
	if n == 1 {
		return "one load balancer"
	}
	return fmt.Sprintf("%d nodes", n)
}

// sink reports that everything is read, and the endpoint of the Service that changes.
type sink struct {
	ctx          context.Context
	loaded, seen chan<- netip.Addr
}

func (s sink) send(to chan<- netip.Addr, a netip.Addr) {
	select {
	case <-s.ctx.Done():
	case to <- a:
	}
}

// changing is the EndpointSlice that changes: that of the first seeded Service.
var changing = proxy.SliceID{Namespace: "ns-0", Name: "svc-0-0"}

func (s sink) SetService(*proxy.Service)   {}
func (s sink) DeleteService(service.ID)    {}
func (s sink) DeleteSlice(_ proxy.SliceID) {}
func (s sink) SetNode(proxy.Node)          {}
func (s sink) Loaded()                     { s.send(s.loaded, netip.Addr{}) }
func (s sink) SetSlice(slice *proxy.Slice) {
	if slice.ID == changing && len(slice.Endpoints) > 0 {
		s.send(s.seen, slice.Endpoints[0].Addr)
	}
}

func (e *experiment) clients(ctx context.Context, c *controlPlane, n int) (err error) {
	before, err := c.settledLoad(ctx) // the watches of earlier clients end after their clients
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	loaded, seen := make(chan netip.Addr, n), make(chan netip.Addr, 2*n)
	for i := range n {
		kubeconfig, err := c.KubeconfigFor(fmt.Sprintf("client-%d", i), "system:masters")
		if err != nil {
			return err
		}
		s, err := source.New(source.Config{
			Kubeconfig: kubeconfig, Node: nodeName(i), Sink: sink{ctx, loaded, seen}, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return err
		}
		running.Go(func() { _ = s.Run(ctx, nil) }) // it ends with the context
	}
	for range n {
		if _, err := next(ctx, loaded); err != nil {
			return fmt.Errorf("read the Services: %w", err)
		}
	}
	after, err := c.settledLoad(ctx) // watches follow the lists
	if err != nil {
		return err
	}
	for _, quantity := range slices.Sorted(maps.Keys(after)) {
		unit, _, _ := strings.Cut(quantity, " ")
		e.add(clientsName(n)+": "+quantity, unit, after[quantity]-before[quantity])
	}
	return e.known(ctx, c, n, seen)
}

func next(ctx context.Context, seen <-chan netip.Addr) (netip.Addr, error) {
	select {
	case <-ctx.Done():
		return netip.Addr{}, ctx.Err()
	case a := <-seen:
		return a, nil
	case <-time.After(settleLimit):
		return netip.Addr{}, errors.New("timeout")
	}
}

// settledLoad returns the load as soon as no watch begins or ends for a while.
func (c *controlPlane) settledLoad(ctx context.Context) (map[string]float64, error) {
	for last := -1.0; ; {
		now, err := c.load(ctx)
		if err != nil || now["watches"] == last {
			return now, err
		}
		last = now["watches"]
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(idle):
		}
	}
}

// load returns what the API server has to do for its clients.
func (c *controlPlane) load(ctx context.Context) (map[string]float64, error) {
	all, err := c.counts(ctx)
	if err != nil {
		return nil, err
	}
	connections, err := c.connections()
	watches := all.sum("apiserver_longrunning_requests", `verb="WATCH"`)
	return map[string]float64{
		"connections": connections, "watches": watches,
		"requests until all is read": watches + all.sum("apiserver_request_total", `verb="LIST"`),
	}, err
}

// connections is the number of established connections to the server.
func (c *controlPlane) connections() (n float64, err error) {
	at, err := url.Parse(c.Config.Host)
	if err != nil {
		return 0, err
	}
	port, err := strconv.Atoi(at.Port())
	if err != nil {
		return 0, err
	}
	f, err := os.Open("/proc/thread-self/net/tcp")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		const remote, state, established = 2, 3, "01"
		fields := strings.Fields(lines.Text())
		if len(fields) > state && fields[state] == established && strings.HasSuffix(fields[remote], fmt.Sprintf(":%04X", port)) {
			n++
		}
	}
	return n, nil
}

// known changes an endpoint, and measures how long it takes until all clients know it.
func (e *experiment) known(ctx context.Context, c *controlPlane, n int, seen <-chan netip.Addr) error {
	for range e.Changes {
		c.changes++
		to := kube.EndpointAddr(1<<20 + c.changes)
		patch := fmt.Sprintf(`[{"op": "replace", "path": "/endpoints/0/addresses/0", "value": %q}]`, to)
		began := time.Now()
		err := c.discovery.Patch(types.JSONPatchType).Namespace(changing.Namespace).Resource("endpointslices").Name(changing.Name).Body([]byte(patch)).Do(ctx).Error()
		if err != nil {
			return err
		}
		for left := n; left > 0; {
			a, err := next(ctx, seen)
			if err != nil {
				return fmt.Errorf("%d clients do not know a change: %w", left, err)
			}
			if a == to {
				left--
			}
		}
		e.add(clientsName(n)+": a change is known", "ms", time.Since(began).Seconds()*1000)
	}
	return nil
}
