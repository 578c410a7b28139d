package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/bgp"
	"github.com/fairlead/fairlead/advertise/l2"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/metrics"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/dsr"
	"github.com/fairlead/fairlead/dataplane/xdp"
	"github.com/fairlead/fairlead/internal/features"
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

func newAgentCommand() *cobra.Command {
	c := config.DefaultAgent()
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run a balancer, the servers' half of direct return, or a service proxy",
		Long: `Agent reads Services and EndpointSlices from a folder, or with --kubernetes from
an API server, probes the servers, holds the healthy ones in the kernel (XDP, or
its IPVS), and announces the VIPs by BGP, on a segment without a router that speaks
it by ARP and neighbour discovery, or has a cloud lead them here (--cloud).

With --role server it is the other half of the tunnel and dsr-nat methods: on
the node of the real servers it takes packets out of the tunnel and gives answers
the VIP as their source. --role balancer,server does both. --role proxy serves all
Services of a cluster to the node's clients, in place of kube-proxy.

The kernel goes on forwarding while the agent is away: an agent that starts finds
what its predecessor left and changes only what must change. When it is told to
end (SIGTERM) it drains first: for --graceful-shutdown-period its routes ask routers to avoid
it, then they are withdrawn, and where it remembers flows it goes on until they have
ended, at most for --drain-timeout; meanwhile the balancers that stay hand it the
packets of flows that they do not know, if --balancers tells them who is leaving. A
second signal ends it at once. It drains, and stays, when its Node is cordoned or
has a taint of --drain-taint, and on fairlead drain.`,
		Example: `  fairlead agent --manifest-dir /etc/fairlead/services --interface eth0 --peer 10.0.0.109
  fairlead agent --manifest-dir /etc/fairlead/services --l2-interfaces eth0 --l2-members 10.0.0.1,10.0.0.2
  fairlead agent --manifest-dir /etc/fairlead/services --role server
  fairlead agent --kubernetes --role balancer,server,proxy --node worker-1 --peer 10.0.0.109`,
		Args:    cobra.NoArgs,
		GroupID: groupRun,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runAgent(cmd.Context(), c)
		},
	}
	agentFlags(cmd, &c)
	return cmd
}

func agentFlags(cmd *cobra.Command, c *config.Agent) {
	f := cmd.Flags()
	f.StringVar(&c.Services, "manifest-dir", c.Services, "`folder` of manifests, watched")
	f.BoolVar(&c.Kubernetes, "kubernetes", false, "take Services from the API server of the cluster that this is a pod of, or of --kubeconfig")
	f.StringVar(&c.Kubeconfig, "kubeconfig", "", "`file` that says how to reach the API server")
	f.BoolVar(&c.GatewayAPI, "gateway-api", false, "with --kubernetes: Gateways of the Gateway API, with their TCPRoutes and UDPRoutes, too")
	f.StringVar(&c.Only, "dedicated-service", "", "`namespace/name` of the one Service that this balancer is for")
	f.BoolVar(&c.RequireClass, "require-class", false, "leave Services without spec.loadBalancerClass to others, as the controller's --require-class does")
	f.StringSliceVar(&c.Roles, "role", c.Roles, "balancer, server, proxy or several")
	f.StringVar(&c.Node, "node", c.Node, "`name` of this node")
	f.StringToStringVar(&c.NodeLabels, "node-labels", nil, "`key=value` labels of this node, for selectors of BGPPeers and Advertisements in the folder")
	f.StringSliceVar(&c.Interfaces, "interface", c.Interfaces, "`name`s of the interfaces on which packets for the VIPs arrive")
	f.StringVar(&c.DataPlane, "dataplane", c.DataPlane, "xdp, ipvs, or auto: xdp where this kernel can, else ipvs")
	f.StringVar(&c.Mode, "xdp-mode", c.Mode, "native, generic, or auto: native where the driver has it")
	f.StringSliceVar(&c.NextHops, "next-hop", nil, "next-hop `address`es to announce (default: the interface's own)")
	f.Uint32Var(&c.AS, "local-asn", c.AS, "our AS `number`")
	f.StringVar(&c.RouterID, "router-id", "", "router ID, an IPv4 `address` (default: the interface's)")
	f.StringSliceVar(&c.Peers, "peer", nil, "BGP peers: `address[:port][@AS]`, beside the BGPPeers of the cluster or folder. None at all announces nothing")
	f.StringVar(&c.PasswordFile, "password-file", "", "`file` with the TCP MD5 password of the peers")
	f.Uint32Var(&c.Weight, "weight", 0, "what this node is worth among balancers where an Advertisement weighs nodes and its label fairlead.io/weight does not say (default 1)")
	f.BoolVar(&c.BFD, "bfd", c.BFD, "watch the peers by BFD")
	f.StringVar(&c.BPFFS, "bpffs", c.BPFFS, "BPF file system `folder` to pin in; mounted if it is none")
	f.StringVar(&c.Socket, "socket", c.Socket, "`file` to answer status, services, backends and routes on")
	f.StringVar(&c.StateDir, "state-dir", "", "with --manifest-dir: `folder` in which the last valid manifests, and which Service has which address, outlive the agent (default: SOCKET.state, which a reboot removes with /run)")
	f.DurationVar(&c.Linger, "withdraw-grace-period", c.Linger, "how long packets are still forwarded after the withdrawal of a route was confirmed")
	f.DurationVar(&c.Keep, "state-cache-max-age", c.Keep, "with --kubernetes: maximum age of the cached state to start from while the API server is unreachable; the cache is next to --socket; 0 disables it")
	drainFlags(f, c)
	f.StringVar(&c.Balancers, "balancers", c.Balancers, "`namespace/name` of the Service whose endpoints are the balancers themselves")
	f.StringSliceVar(&c.AcceptFrom, "accept-from", nil, "with --role server: Services of load balancers, `namespace/name` or namespace/label=value, whose endpoints alone may tunnel packets to backends here (default any sender)")
	f.StringVar(&c.NodeKeyFile, "node-key-file", "", "`file` with the key that load balancers and backend nodes authenticate their packets by: one line, or two while keys change, of which the first is used; followed")
	f.BoolVar(&c.RequireNodeKey, "require-node-key", false, "drop packets of load balancers and nodes that have no tag by --node-key-file; otherwise they are counted")
	f.DurationVar(&c.Resync, "resync", c.Resync, "how often everything is compared with the kernel again")
	f.IntVar(&c.MaxFrontends, "max-frontends", 0, fmt.Sprintf("how many VIP:ports there may be (default %d)", xdp.DefaultMaxFrontends))
	f.IntVar(&c.MaxBackends, "max-backends", 0, fmt.Sprintf("how many servers there may be (default %d)", xdp.DefaultMaxBackends))
	f.IntVar(&c.MaxFlows, "max-flows", 0, fmt.Sprintf("how many flows are remembered (default %d; %d beside servers)",
		xdp.DefaultMaxFlows, dsr.DefaultMaxFlows))
	f.IntVar(&c.SYNThreshold, "syn-threshold", 0, fmt.Sprintf("from how many new TCP connections a second on a frontend is protected from SYN floods, "+
		"where most of its packets are SYNs (default %d)", service.DefaultSYNThreshold))
	f.Uint16Var(&c.GUEPort, "gue-port", 0, fmt.Sprintf("UDP port of GUE tunnels, the same everywhere (default %d)", service.DefaultGUEPort))
	metricsFlag(cmd, &c.Metrics)
	proxyFlags(f, &c.ServiceProxy)
	cloudFlags(cmd, &c.Cloud, config.CloudController, "gcp", "webhook")
	layer2Flags(f, &c.Layer2)
	for flag, values := range map[string][]string{"dataplane": config.DataPlanes, "xdp-mode": config.Modes, "role": {string(config.Balancer), string(config.Server), string(config.Proxy)}} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
}

func runAgent(ctx context.Context, c config.Agent) (err error) {
	r, err := c.Resolve()
	if err != nil {
		return err
	}
	if r.Balancer && r.RouterID.IsValid() {
		if err := speakerConfig(r).Validate(); err != nil {
			return config.Invalid(err)
		}
	}
	a := &agent{config: r, started: time.Now(), lacks: lacks(agentPrivileges(r)...)}
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
	group.Go(func() error { defer end(); return status.Answer(life, a.socket, a.status, a.endpoints()...) })
	group.Go(func() error { a.reportDegraded(life); return nil })
	group.Go(func() error { a.keys.follow(life); return nil })
	if a.metrics != nil {
		group.Go(func() error { defer end(); return metrics.Serve(life, a.metrics, a.status) })
	}
	return group.Wait()
}

// agent contains the components of a running agent. Those that its roles do not need are
// nil.
type agent struct {
	config  *config.Resolved
	started time.Time
	lacks   error // missing capabilities, or nil
	socket  net.Listener
	metrics net.Listener  // for Prometheus; may be nil
	state   *statedir.Dir // persistent state; nil if the agent follows a cluster
	speaker *bgp.Speaker
	cloud   advertise.Announcer // nil without a cloud
	layer2  *l2.Announcer
	plane   plane               // the data plane
	xdp     *xdp.DataPlane      // the same, if it is XDP
	noXDP   []features.Degraded // why IPVS is used instead
	half    *dsr.Half
	proxy   *serviceProxy // nil without that role
	source  source.Source
	cluster *kube.Source // if the Services come from a cluster
	begun   *ahead       // in that case, the source
	// peersTold means that the cluster's BGPPeers are known.
	peersTold atomic.Bool
	prober    *probe.Prober
	loop      *reconciler.Loop
	keys      *nodeKeys // may be nil
}

// open creates the components. It starts with the socket, so that another agent that has
// it is not disturbed. The components that need the network come next: sessions are
// established and a cluster is listed while the programs load.
func (a *agent) open() (err error) {
	r, log := a.config, slog.Default()
	if err := a.listen(); err != nil {
		return err
	}
	a.prober = probe.New(log)
	if r.Balancer && r.RouterID.IsValid() { // BGPPeers follow later
		if a.speaker, err = bgp.NewSpeaker(speakerConfig(r)); err != nil {
			return err
		}
	}
	if r.Proxy {
		a.proxy = newProxy(r)
	}
	if err := a.openSource(); err != nil {
		return err
	}
	if r.Proxy {
		if err := a.proxy.open(); err != nil {
			return err
		}
	}
	if !r.Balancer && !r.Server {
		return nil
	}
	loop := reconciler.Config{
		Source: a.source, Own: []netip.Addr{r.Source4, r.Source6}, DrainTimeout: r.DrainTimeout, Balancers: r.Balancers != "",
		CheckSenders: len(r.AcceptFrom) > 0,
		Node:         plan.Node{Name: r.Node, NextHop4: r.NextHop4, NextHop6: r.NextHop6, Only: r.OnlyID, Weight: r.Weight},
		Linger:       r.Linger, Resync: r.Resync, Log: log, DrainNotice: r.DrainNotice,
		Avoid: plan.Avoid{Communities: r.AvoidCommunities, MED: r.DrainMED},
	}
	if a.state != nil {
		loop.Claims = record.New(a.state, log)
	}
	if r.Balancer {
		if err := a.openBalancer(&loop); err != nil {
			return err
		}
	}
	if r.Server {
		a.half, err = dsr.Open(dsr.Config{
			PinDir: filepath.Join(r.BPFFS, "fairlead", "server"), MaxFlows: uint32(r.MaxFlows), GUEPort: r.GUEPort, Auth: r.NodeAuth, Log: log,
		})
		if err != nil {
			return err
		}
		loop.ServerHalf = serverHalf{a.half}
	}
	a.loop = reconciler.New(loop)
	a.keys = a.newKeys()
	return nil
}

// openBalancer creates the components that advertise, probe and forward.
func (a *agent) openBalancer(loop *reconciler.Config) error {
	loop.Prober, loop.Taken = a.prober, a.taken
	a.tellDrains(loop)
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

// listen creates the sockets of the status API and of Prometheus.
func (a *agent) listen() (err error) {
	if a.socket, err = status.Listen(a.config.Socket); err != nil {
		return err
	}
	a.metrics, err = listenMetrics(a.config.Metrics)
	return err
}

// openSource opens the source of the Services, and starts to read a cluster's.
func (a *agent) openSource() (err error) {
	r, log := a.config, slog.Default()
	if !r.Agent.Kubernetes {
		a.state = statedir.Open(r.StateDir, log)
		folder := manifest.New(r.Services, log)
		folder.Persist(a.state)
		folder.Balancers(r.BalancersID)
		folder.AcceptFrom(r.AcceptFrom)
		if r.Balancer {
			folder.Routing(r.NodeLabels, a.setPeers)
		}
		a.source = folder
		return nil
	}
	c := kube.Config{
		Kubeconfig: r.Kubeconfig, Node: r.Node, Balancers: r.BalancersID, AcceptFrom: r.AcceptFrom, RequireClass: r.RequireClass,
		GatewayAPI: r.GatewayAPI, Advertisements: r.Balancer || r.Server, Log: log,
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
	a.begun = begin(of, r.Balancer || r.Server)
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
		c.Peers = append(c.Peers, peerConfig(p, r.Password, r.BFD))
	}
	return c
}

// serverHalf adapts the DSR agent to the interface of the loop.
type serverHalf struct{ *dsr.Half }

func (h serverHalf) Set(frontends []desired.Frontend) error {
	var entries []dsr.Entry
	var sources []dsr.Sources
	for _, f := range frontends {
		entries = append(entries, dsr.Entries(f)...)
		sources = append(sources, dsr.Sources{Key: f.Key, Allow: f.Allow, Deny: f.Deny})
	}
	return errors.Join(h.SetSources(sources), h.Half.Set(entries)) // a frontend must not receive packets before its source ranges are set
}

// close closes everything; the kernel keeps forwarding.
func (a *agent) close() error {
	var errs []error
	for _, l := range []net.Listener{a.socket, a.metrics} {
		if l == nil {
			continue
		}
		if err := l.Close(); !errors.Is(err, net.ErrClosed) { // may have been closed by Serve
			errs = append(errs, err)
		}
	}
	if a.cluster != nil {
		a.cluster.Told()
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
	if a.half != nil {
		errs = append(errs, a.half.Close())
	}
	a.state.Close()
	if a.proxy != nil {
		errs = append(errs, a.proxy.close())
	}
	return errors.Join(errs...)
}

func (a *agent) status() status.Status { return a.teller().Gather(time.Now()) }

func (a *agent) ready() status.Readiness { return a.teller().Ready(time.Now()) }

// teller returns the source of the agent's status.
func (a *agent) teller() status.Agent {
	s := status.Agent{
		Version: version.String(), Kernel: version.Kernel(), Node: a.config.Node, Role: strings.Join(a.config.Roles, ", "),
		Started: a.started, Lacks: a.lacks, Degraded: a.degraded, PeersUnknown: a.speaker != nil && a.config.Agent.Kubernetes && !a.peersTold.Load(),
	}
	if a.loop != nil {
		s.View = a.loop.View
	}
	if a.state != nil {
		s.State = a.state
	}
	if a.cluster != nil {
		s.Source = a.cluster.Problems
	}
	if a.proxy != nil {
		s.ServiceProxy, s.ProxySync = a.proxy.state, a.proxy.loop.Sync
	}
	if a.plane != nil {
		s.DataPlane = a.plane
		s.Probed = a.prober.Result
	}
	if a.half != nil {
		s.ServerHalf = a.half.State
	}
	if a.speaker != nil && len(a.speaker.Peers()) > 0 {
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
