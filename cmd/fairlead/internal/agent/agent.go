// Package agent assembles an agent from a validated configuration: the source of Services,
// the loop, a data plane, speakers and the service proxy. It serves the status and the
// requests of query commands (package api).
//
// Flags are defined by the command. What can run without the other parts belongs into a
// package of its own. Tests cover what is not mere wiring; whole agents run in lab/e2e.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/bgp"
	"github.com/fairlead/fairlead/advertise/l2"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/metrics"
	"github.com/fairlead/fairlead/agent/otlp"
	"github.com/fairlead/fairlead/agent/selection"
	"github.com/fairlead/fairlead/agent/socket"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/daemon"
	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/dataplane/dsr"
	"github.com/fairlead/fairlead/dataplane/nexthop"
	"github.com/fairlead/fairlead/dataplane/xdp"
	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/internal/heartbeat"
	"github.com/fairlead/fairlead/internal/privilege/held"
	"github.com/fairlead/fairlead/internal/statedir"
	"github.com/fairlead/fairlead/internal/version"
	"github.com/fairlead/fairlead/reconciler"
	"github.com/fairlead/fairlead/reconciler/probe"
	"github.com/fairlead/fairlead/reconciler/record"
	"github.com/fairlead/fairlead/source"
	"github.com/fairlead/fairlead/source/cache"
	"github.com/fairlead/fairlead/source/kube"
	"github.com/fairlead/fairlead/source/manifest"
)

// Run runs an agent until ctx is canceled and, if it is a load balancer, until it has
// drained.
func Run(ctx context.Context, c config.Agent) (err error) {
	r, err := c.Resolve()
	if err != nil {
		return err
	}
	if r.Balancer && r.RouterID.IsValid() {
		if err := speakerConfig(r).Validate(); err != nil {
			return config.Invalid(err)
		}
	}
	a := &agent{config: r, started: time.Now(), lacks: daemon.Lacks(agentPrivileges(r)...)}
	defer func() { err = held.Blame(errors.Join(err, a.close()), a.lacks) }()
	if err := a.open(); err != nil {
		return err
	}
	// The loop ends with ctx, everything else when it has drained. The first failure
	// stops everything.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	group, life := errgroup.WithContext(life)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(life, stop)()
	if a.loop != nil {
		a.loop.Hurry = life.Done()
	}
	if a.proxy != nil {
		a.proxy.run(life, group)
	}
	group.Go(func() error { defer end(); return a.follow(ctx) })
	group.Go(func() error { defer end(); return a.prober.Run(life) })
	group.Go(func() error { defer end(); return status.Answer(life, a.socket, a.statusOf, a.endpoints()...) })
	group.Go(func() error { a.logDegraded(); a.events.watch(life, a.seen); return nil })
	group.Go(func() error { a.keys.follow(life); return nil })
	group.Go(func() error { a.saveMemory(life); return nil })
	group.Go(func() error { a.sendTraces(life); return nil })
	if a.cluster != nil && r.Balancer {
		group.Go(func() error { a.report(life); return nil })
	}
	group.Go(func() error {
		defer end()
		return a.monitor.Serve(life, metrics.Handler(a.status, metrics.Options{Backends: a.config.BackendMetrics}), a.rounds.Stuck, func() error { return a.ready().Err() })
	})
	return group.Wait()
}

// agent contains the components of a running agent. Those that its roles do not need are
// nil.
type agent struct {
	config  *config.Resolved
	started time.Time
	lacks   error // missing capabilities, or nil
	rounds  heartbeat.Rounds
	socket  net.Listener
	monitor daemon.Monitor // for monitoring systems
	state   *statedir.Dir  // persistent state; nil if the agent follows a cluster
	events  *events        // the journal
	traces  *otlp.Exporter // nil without a collector
	speaker *bgp.Speaker
	cloud   advertise.Announcer // nil without a cloud
	layer2  *l2.Announcer
	plane   plane               // the data plane
	xdp     *xdp.DataPlane      // the same, if it is XDP
	noXDP   []features.Degraded // why IPVS is used instead
	dsr     *dsr.Agent
	proxy   *serviceProxy // nil without that role
	source  source.Source
	folder  *manifest.Source // if the Services come from manifests
	cluster *kube.Source     // if the Services come from a cluster
	begun   *ahead           // the source, started
	// peersKnown means that the cluster's BGPPeers are known.
	peersKnown atomic.Bool
	prober     *probe.Prober
	loop       *reconciler.Loop
	keys       *nodeKeys // may be nil
}

// open creates the components. It starts with the socket, so that another agent that has
// it is not disturbed. The components that need the network come next: sessions are
// established and Services are read while the programs load.
func (a *agent) open() (err error) {
	r, log := a.config, slog.Default()
	if err := a.listen(); err != nil {
		return err
	}
	if !r.Agent.Kubernetes {
		a.state = statedir.Open(r.StateDir, log)
	}
	a.openEvents()
	a.prober = probe.New(log)
	a.prober.Events = a.events.Record
	if r.Balancer && r.RouterID.IsValid() { // BGPPeers follow later
		c := speakerConfig(r)
		c.Events = a.events.Record
		if a.speaker, err = bgp.NewSpeaker(c); err != nil {
			return err
		}
	}
	if r.Proxy {
		a.proxy = newProxy(r, &a.rounds)
	}
	if err := a.openSource(); err != nil {
		return err
	}
	if r.Proxy {
		if err := a.proxy.open(); err != nil {
			return err
		}
	}
	if !r.Balancer && !r.DSR {
		return nil
	}
	loop := a.loopConfig()
	if r.Balancer {
		if err := a.openBalancer(&loop); err != nil {
			return err
		}
	}
	if r.DSR {
		a.dsr, err = dsr.Open(dsr.Config{
			PinDir: filepath.Join(r.BPFFS, "fairlead", "server"), MaxFlows: uint32(r.MaxFlows), GUEPort: r.GUEPort, Auth: r.NodeAuth, Log: log,
		})
		if err != nil {
			return err
		}
		loop.DSRAgent = dsrAgent{a.dsr}
	}
	if err := a.openTraces(&loop); err != nil {
		return err
	}
	a.loop = reconciler.New(loop)
	a.events.loop.Store(a.loop)
	a.keys = a.newKeys()
	return nil
}

// loopConfig returns what the loop needs in every role.
func (a *agent) loopConfig() reconciler.Config {
	r, log := a.config, slog.Default()
	loop := reconciler.Config{
		Source: a.source, Own: []netip.Addr{r.Source4, r.Source6}, DrainTimeout: r.DrainTimeout, Balancers: r.Balancers != "",
		CheckSenders: len(r.AcceptFrom) > 0,
		Node:         plan.Node{Name: r.Node, NextHop4: r.NextHop4, NextHop6: r.NextHop6, Only: r.OnlyID, Weight: r.Weight},
		Linger:       r.Linger, Resync: r.Resync, Log: log, DrainNotice: r.DrainNotice,
		Avoid:  plan.Avoid{Communities: r.AvoidCommunities, MED: r.DrainMED},
		Rounds: &a.rounds, Events: a.events.Record, OnDrain: func(d reconciler.Drain) { a.events.Record(drainEvent(r.Node, d)) },
	}
	if a.state != nil {
		loop.Claims = record.New(a.state, log)
	}
	return loop
}

// openBalancer creates the components that advertise, probe and forward.
func (a *agent) openBalancer(loop *reconciler.Config) error {
	loop.Prober, loop.Taken = a.prober, a.taken
	if a.speaker != nil {
		loop.Announcer = advertise.Only(route.ModeBGP, a.speaker)
	}
	if err := a.openCloud(loop); err != nil {
		return err
	}
	if err := a.openLayer2(loop); err != nil {
		return err
	}
	if err := a.openPlane(); err != nil {
		return err
	}
	loop.DataPlane = a.plane
	return nil
}

// listen creates the sockets of the status API and for monitoring systems.
func (a *agent) listen() (err error) {
	if a.socket, err = socket.Listen(a.config.Socket); err != nil {
		return err
	}
	a.monitor, err = daemon.ListenMonitor(a.config.Monitoring)
	return err
}

// openSource opens the source of the Services, and starts to read it.
func (a *agent) openSource() (err error) {
	r, log := a.config, slog.Default()
	if !r.Agent.Kubernetes {
		folder := manifest.New(r.Services, log)
		folder.Persist(a.state)
		folder.Balancers(r.BalancersID)
		folder.AcceptFrom(r.AcceptFrom)
		if r.Balancer {
			folder.Routing(r.NodeLabels, a.setPeers)
		}
		a.folder = folder
		a.begun = begin(folder, r.Balancer || r.DSR)
		a.source = a.begun
		return nil
	}
	c := kube.Config{
		Kubeconfig: r.Kubeconfig, Node: r.Node, Balancers: r.BalancersID, AcceptFrom: r.AcceptFrom, RequireClass: r.RequireClass,
		GatewayAPI: r.GatewayAPI, Advertisements: r.Balancer || r.DSR, Log: log,
	}
	if r.Only != "" {
		if c.Pod, err = os.Hostname(); err != nil {
			return fmt.Errorf("name of the pod: %w", err)
		}
	}
	if r.Balancer {
		c.OnPeers, c.DrainOnCordon, c.DrainTaints = a.setPeers, r.DrainOnCordon, r.DrainTaints
	}
	if a.proxy != nil {
		c.Sink, c.OnNode = a.proxy.loop, a.proxy.onNode
	}
	var keep *cache.Source
	if r.Keep > 0 {
		keep = cache.New(cache.Config{File: r.Socket + ".kept", Limit: r.Keep, Log: log})
		c.OnPeers = keep.OnPeers(c.OnPeers)
	}
	if a.cluster, err = kube.New(c); err != nil {
		return err
	}
	var of source.Source = a.cluster
	if keep != nil {
		of = keep.Before(a.cluster)
	}
	a.begun = begin(of, r.Balancer || r.DSR)
	a.source = a.begun
	return nil
}

// follow applies what the source publishes until ctx is canceled and the load balancer,
// if any, has drained.
func (a *agent) follow(ctx context.Context) error {
	if a.loop == nil {
		return a.source.Run(ctx, nil)
	}
	return a.loop.Run(ctx)
}

func speakerConfig(r *config.Resolved) bgp.SpeakerConfig {
	c := bgp.SpeakerConfig{AS: r.AS, RouterID: r.RouterID, Log: slog.Default()}
	for _, p := range r.Peers {
		c.Peers = append(c.Peers, daemon.PeerConfig(p, r.Password, r.BFD))
	}
	return c
}

// dsrAgent adapts the DSR agent to the interface of the loop.
type dsrAgent struct{ *dsr.Agent }

func (h dsrAgent) Set(frontends []desired.Frontend) error {
	var entries []dsr.Entry
	var sources []dsr.Sources
	for _, f := range frontends {
		entries = append(entries, dsr.Entries(f)...)
		sources = append(sources, dsr.Sources{Key: f.Key, Allow: f.Allow, Deny: f.Deny})
	}
	return errors.Join(h.SetSources(sources), h.Agent.Set(entries)) // a frontend must not receive packets before its source ranges are set
}

// close closes everything; the kernel keeps forwarding.
func (a *agent) close() error {
	errs := []error{a.monitor.Close()}
	if a.socket != nil {
		if err := a.socket.Close(); !errors.Is(err, net.ErrClosed) { // may have been closed by Serve
			errs = append(errs, err)
		}
	}
	if a.begun != nil {
		_ = a.begun.close() // Run has reported its error
	}
	if a.speaker != nil {
		errs = append(errs, a.speaker.Close())
	}
	if a.cloud != nil {
		errs = append(errs, a.cloud.Close())
	}
	if a.layer2 != nil {
		errs = append(errs, a.layer2.Close())
	}
	if a.plane != nil {
		errs = append(errs, a.plane.Close())
	}
	if a.dsr != nil {
		errs = append(errs, a.dsr.Close())
	}
	if a.events != nil {
		a.events.Close()
	}
	if a.cluster != nil {
		a.cluster.FlushEvents()
	}
	a.state.Close()
	if a.proxy != nil {
		errs = append(errs, a.proxy.close())
	}
	return errors.Join(errs...)
}

func (a *agent) status() status.Status { return a.statusSource().Gather(time.Now()) }

func (a *agent) statusOf(only selection.Selection) status.Status {
	return a.statusSource().GatherOnly(time.Now(), only)
}

func (a *agent) ready() status.Readiness { return a.statusSource().Ready(time.Now()) }

// statusSource returns the source of the agent's status.
func (a *agent) statusSource() status.Agent {
	s := status.Agent{
		Version: version.String(), Kernel: version.Kernel(), Node: a.config.Node, Role: strings.Join(a.config.Roles, ", "),
		Started: a.started, Lacks: a.lacks, Degraded: a.degraded, PeersUnknown: a.speaker != nil && a.config.Agent.Kubernetes && !a.peersKnown.Load(),
	}
	if a.loop != nil {
		s.View = a.loop.View
	}
	if a.folder != nil {
		s.ManifestDir, _ = filepath.Abs(a.config.Services) // fails only without a working directory
	}
	if a.state != nil {
		s.State = a.state
	}
	if a.events != nil {
		s.Journal, s.Measure = a.events.Problem, a.measure
	}
	if a.cluster != nil {
		s.Source = a.cluster.Problems
	}
	if a.proxy != nil {
		s.ServiceProxy, s.ProxyProblems, s.ProxySync = a.proxy.state, a.proxy.problems, a.proxy.loop.Sync
	}
	if a.plane != nil {
		s.DataPlane = a.plane
		s.Probed, s.Paths = a.prober.Result, nexthop.Look
	}
	if a.dsr != nil {
		s.DSRAgent, s.Placement = a.dsr.State, a.dsr.Placement
	}
	if len(a.peers()) > 0 {
		s.Announcer = advertise.Announcer(a.speaker)
	}
	if a.keys != nil {
		s.NodeKeys = a.keys.state
	}
	s.Cloud = a.cloud
	if a.layer2 != nil {
		s.Layer2 = a.layer2
	}
	return s
}
