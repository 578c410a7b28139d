package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/advertise/bgp"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/internal/privilege"
	"github.com/fairlead/fairlead/internal/privilege/held"
	"github.com/fairlead/fairlead/internal/version"
)

func newReflectorCommand() *cobra.Command {
	c := config.Reflector{AS: config.DefaultAS, BFD: true, MaxClients: bgp.DefaultMaxPeers, MaxPrefixes: bgp.DefaultMaxPrefixes, MaxTotal: bgp.DefaultMaxTotal, Socket: status.Socket(status.RoleReflector)}
	cmd := &cobra.Command{
		Use:   "reflector",
		Short: "Run the BGP route reflector between balancers and router",
		Long: `Reflector takes BGP sessions from balancers of any address within the clients'
prefixes, and passes all of their routes on to the routers (add-path), so that a
router needs to know the reflector alone. Run two of them for redundancy.`,
		Example: `  fairlead reflector --router-id 10.0.0.109 --client-range 172.16.0.0/16 --router-range 10.0.0.110`,
		Args:    cobra.NoArgs,
		GroupID: groupRun,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runReflector(cmd.Context(), c)
		},
	}
	f := cmd.Flags()
	f.Uint32Var(&c.AS, "local-asn", c.AS, "our AS `number`, and that of all neighbours")
	f.StringVar(&c.RouterID, "router-id", "", "our router ID, an IPv4 `address` of this machine")
	f.StringVar(&c.ClusterID, "cluster-id", "", "cluster ID, an IPv4 `address` (default: the router ID)")
	f.StringSliceVar(&c.Listen, "listen", nil, "`address`es to take sessions on (default: all)")
	f.StringSliceVar(&c.Clients, "client-range", nil, "`prefix`es from which balancers dial")
	f.StringSliceVar(&c.Routers, "router-range", nil, "`address`es or prefixes from which routers dial")
	f.StringVar(&c.PasswordFile, "password-file", "", "`file` with the TCP MD5 password of all sessions")
	f.BoolVar(&c.BFD, "bfd", c.BFD, "watch neighbours by BFD")
	f.IntVar(&c.MaxClients, "max-clients", c.MaxClients, "balancers that may have sessions; 0: any `number`")
	f.Uint32Var(&c.MaxPrefixes, "max-prefixes", c.MaxPrefixes, "prefixes of each family that a balancer may announce; one that announces more is cut; 0: any `number`")
	f.Uint32Var(&c.MaxTotal, "max-total-prefixes", c.MaxTotal, "prefixes of both families that all balancers together may announce; the one with most is cut; 0: any `number`")
	f.StringVar(&c.Socket, "socket", c.Socket, "`file` to answer status and routes on")
	metricsFlag(cmd, &c.Metrics)
	return cmd
}

func runReflector(ctx context.Context, c config.Reflector) (err error) {
	lacking := lacks(privilege.Reflector)
	defer func() { err = held.Blame(err, lacking) }()
	collectLess()
	r, err := c.Resolve()
	if err != nil {
		return err
	}
	session := bgp.NeighborGroup{AS: r.AS, Password: r.Password, BFD: r.BFD}
	clients, routers := session, session
	clients.Name, clients.Prefixes, clients.MaxPeers, clients.MaxPrefixes = "clients", r.Clients, r.MaxClients, r.MaxPrefixes
	routers.Name, routers.Prefixes, routers.SendMax = "routers", r.Routers, bgp.DefaultSendMax
	of := bgp.ReflectorConfig{
		AS: r.AS, RouterID: r.RouterID, ClusterID: r.ClusterID, Listen: r.Listen,
		Groups: []bgp.NeighborGroup{clients, routers}, MaxTotal: r.MaxTotal, Log: slog.Default(),
	}
	if err := of.Validate(); err != nil {
		return config.Invalid(err)
	}
	reflector, err := bgp.NewReflector(of)
	if err != nil {
		return err
	}
	slog.Info("reflecting", "asn", r.AS, "clients", r.Clients, "routers", r.Routers)
	look := routing(status.RoleReflector)
	look.Peers, look.Heard = reflector.Peers, reflector.Routes
	err = serveStatus(ctx, c.Socket, c.Metrics, func() status.Status { return look.Gather(time.Now()) })
	return errors.Join(err, reflector.Close())
}

// collectLess makes garbage collection less frequent, unless GOGC is set: it would take a
// fifth of the second or two in which a full table arrives.
func collectLess() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}

// routing returns the base of the Status of a routing daemon.
func routing(role string) status.Routing {
	node, err := os.Hostname()
	if err != nil {
		node = "localhost"
	}
	return status.Routing{Version: version.String(), Kernel: version.Kernel(), Node: node, Role: role, Started: time.Now()}
}
