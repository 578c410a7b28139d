package routing

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/fairlead/fairlead/advertise/bgp"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/journal"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/daemon"
	"github.com/fairlead/fairlead/internal/privilege"
	"github.com/fairlead/fairlead/internal/privilege/held"
	"github.com/fairlead/fairlead/internal/version"
)

// RunReflector runs a reflector until ctx is canceled.
func RunReflector(ctx context.Context, c config.Reflector) (err error) {
	lacking := daemon.Lacks(privilege.Reflector)
	defer func() { err = held.Blame(err, lacking) }()
	daemon.LetHeapGrow(heapGrowth)
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
	look := statusBase(status.RoleReflector)
	events := openJournal(look, c.Socket)
	defer events.Close()
	of.Events = events.Record
	reflector, err := bgp.NewReflector(of)
	if err != nil {
		return err
	}
	slog.Info("reflecting", "asn", r.AS, "clients", r.Clients, "routers", r.Routers)
	look.Peers, look.Received = reflector.Peers, reflector.Routes
	err = daemon.ServeStatus(ctx, c.Socket, c.Monitoring, nil, func() status.Status { return look.Gather(time.Now()) }, events.Endpoint())
	return errors.Join(err, reflector.Close())
}

// heapGrowth makes garbage collection less frequent: it would take a fifth of the second
// or two in which a full table arrives.
const heapGrowth = 400

// openJournal opens the journal of a daemon next to its socket.
func openJournal(of status.Routing, socket string) *daemon.Journal {
	return daemon.OpenJournal(of.Node, []string{of.Role}, nil, socket+".state", journal.Config{})
}

// statusBase returns the base of the Status of a routing daemon.
func statusBase(role string) status.Routing {
	node, err := os.Hostname()
	if err != nil {
		node = "localhost"
	}
	return status.Routing{Version: version.String(), Kernel: version.Kernel(), Node: node, Role: role, Started: time.Now()}
}
