package main

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/status"
	source "github.com/fairlead/fairlead/source/kube"
	"github.com/fairlead/fairlead/vdn/audit"
	"github.com/fairlead/fairlead/vdn/federation"
	"github.com/fairlead/fairlead/vdn/kube"
	"github.com/fairlead/fairlead/vdn/page"
	"github.com/fairlead/fairlead/vdn/server"
	"github.com/fairlead/fairlead/vdn/store"
	"github.com/fairlead/fairlead/vdn/store/etcd"
)

// defaultVDN is the controller's configuration without flags.
func defaultVDN() config.VDN {
	return config.VDN{Data: config.DefaultVDNData, Domain: "local", Listen: "127.0.0.1:7473"}
}

func newVDNCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "vdn",
		Short:   "Run and query virtual dedicated networks",
		Long:    `Run the controller and the node agents of virtual dedicated networks, and query them.`,
		Example: `  fairlead vdn get networks`,
		GroupID: groupRun,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newVDNControllerCommand(), newVDNAgentCommand(), newVDNGetCommand(), newVDNApplyCommand(), newVDNDeleteCommand(),
		newVDNStatusCommand(), newVDNTokenCommand(), newVDNCopyCommand(), newInstallCNICommand())
	return cmd
}

func newVDNControllerCommand() *cobra.Command {
	c := defaultVDN()
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Run the controller of virtual dedicated networks",
		Long: `Run the controller of a domain's networks. It stores the networks, their leases,
guaranteed and maximum rates and permissions, serves them by REST to fairlead-cni
and other clients, and sends each node what to enforce. A change is on disk before
it is answered. With --etcd-endpoints, several controllers share one state, and any
of them can stop.

Requests from other machines need TLS. With --token-file or --access-file, every
request needs a token; roles define its permissions. With --kubernetes, networks are
the cluster's VirtualNetworks, and leases are shown as NetworkLeases of pods.`,
		Example: `  fairlead vdn controller --data /var/lib/fairlead/vdn
  fairlead vdn controller --domain daejeon.example --listen 10.0.0.5:7473 --tls-cert vdn.crt --tls-key vdn.key --token-file token
  fairlead vdn controller --listen unix:///run/fairlead/vdn/api.sock
  fairlead vdn controller --listen 10.0.0.5:7473 --tls-cert vdn.crt --tls-key vdn.key --token-file token --etcd-endpoints https://10.0.0.5:2379,https://10.0.0.6:2379 --etcd-ca ca.crt --etcd-cert vdn.crt --etcd-key vdn.key
  fairlead vdn controller --domain daejeon.example --federation-listen :7474 --federation-cert daejeon.crt --federation-key daejeon.key --federation-ca ca.crt`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runVDN(cmd.Context(), c) },
	}
	f := cmd.Flags()
	f.StringVar(&c.Data, "data", c.Data, "`DIR` of the state, without etcd")
	f.StringVar(&c.Name, "name", "", "`NAME` of this controller in its domain (default: the host name)")
	etcdFlags(cmd, &c.Etcd)
	f.StringVar(&c.Domain, "domain", c.Domain, "DNS `NAME` of this domain")
	f.StringVar(&c.Listen, "listen", c.Listen, "`ADDR:PORT` to listen on, or unix:///path")
	f.StringVar(&c.TLSCert, "tls-cert", "", "`FILE` with the server certificate (PEM)")
	f.StringVar(&c.TLSKey, "tls-key", "", "`FILE` with its key (PEM)")
	f.StringVar(&c.TokenFile, "token-file", "", "`FILE` with an admin token")
	f.StringVar(&c.AccessFile, "access-file", "", "`FILE` with tokens and their roles (entries: fairlead vdn token)")
	f.StringVar(&c.AuditLog, "audit-log", "", "`FILE` of the audit log (JSON lines); - for standard output")
	f.BoolVar(&c.Kubernetes, "kubernetes", false, "use the cluster's VirtualNetworks as the only networks")
	f.StringVar(&c.Kubeconfig, "kubeconfig", "", "`FILE` with the credentials of the API server (default: in-cluster)")
	f.StringVar(&c.FederationListen, "federation-listen", "", "`ADDR:PORT` for other domains; empty disables federation")
	f.StringVar(&c.FederationKeys.Cert, "federation-cert", "", "`FILE` with this domain's certificate (PEM)")
	f.StringVar(&c.FederationKeys.Key, "federation-key", "", "`FILE` with its key (PEM)")
	f.StringVar(&c.FederationKeys.CA, "federation-ca", "", "`FILE` with the CAs of other domains (PEM)")
	return cmd
}

func runVDN(ctx context.Context, c config.VDN) error {
	r, err := c.Resolve()
	if err != nil {
		return err
	}
	kept, err := openStore(ctx, r)
	if err != nil {
		return err
	}
	return errors.Join(answerVDN(ctx, r, kept), kept.Close())
}

// openStore opens the store in a directory, or in etcd.
func openStore(ctx context.Context, r *config.ResolvedVDN) (*store.Store, error) {
	if r.Store == nil {
		return store.Open(r.Data, r.Domain)
	}
	backend, err := etcd.Open(ctx, *r.Store)
	if err != nil {
		return nil, err
	}
	return store.New(ctx, store.Options{Backend: backend, Domain: r.Domain})
}

// answerVDN serves and queries until ctx is canceled, or one of its parts fails.
func answerVDN(ctx context.Context, r *config.ResolvedVDN, kept *store.Store) (err error) {
	var trail *audit.Log
	if r.AuditLog != "" {
		if trail, err = audit.Open(r.AuditLog, slog.Default()); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, trail.Close()) }()
	}
	l, err := listenVDN(r)
	if err != nil {
		return err
	}
	slog.Info("listening", "address", l.Addr(), "domain", r.Domain, "data", whereStored(r), "revision", kept.Revision())
	o := server.Options{Store: kept, Name: r.Name, Tokens: r.Tokens, Audit: trail, Page: page.Handler(), Log: slog.Default()}
	follow, err := followCluster(r, kept)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	if follow != nil {
		o.Elsewhere = "the cluster's VirtualNetworks: change those, as by kubectl apply"
	}
	s := server.New(o)
	serve, query, err := federate(r, s)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	lead := func(ctx context.Context) error {
		return s.Lead(ctx, func(ctx context.Context) error {
			if err := together(ctx, follow, query); err != nil {
				return err
			}
			<-ctx.Done() // keep leading even without work
			return nil
		})
	}
	return together(ctx, serve, lead, func(ctx context.Context) error { return s.Serve(ctx, l) })
}

// whereStored returns the location of the store, for the log.
func whereStored(r *config.ResolvedVDN) string {
	if r.Store != nil {
		return "etcd " + r.Store.Prefix
	}
	return r.Data
}

// together runs functions until all end; if one fails, the others are canceled. Nil
// functions are skipped.
func together(ctx context.Context, run ...func(context.Context) error) error {
	all, ctx := errgroup.WithContext(ctx)
	for _, f := range run {
		if f != nil {
			all.Go(func() error { return f(ctx) })
		}
	}
	return all.Wait()
}

// followCluster returns the function that synchronizes the store with a cluster; nil
// without a cluster.
func followCluster(r *config.ResolvedVDN, kept *store.Store) (func(context.Context) error, error) {
	if !r.Kubernetes {
		return nil, nil
	}
	way, err := source.Connection(r.Kubeconfig)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		cluster, err := kube.New(kube.Config{Client: way, Store: kept, Log: slog.Default()})
		if err != nil {
			return err
		}
		return cluster.Run(ctx)
	}, nil
}

// federate returns the functions that inform and query other domains, if enabled.
func federate(r *config.ResolvedVDN, s *server.Server) (serve, query func(context.Context) error, err error) {
	if r.FederationListen == "" {
		return nil, nil, nil
	}
	f, err := federation.New(s, federation.Options{Keys: r.FederationKeys, Log: slog.Default()})
	if err != nil {
		return nil, nil, err
	}
	l, err := net.Listen("tcp", r.FederationListen)
	if err != nil {
		return nil, nil, err
	}
	serve = func(ctx context.Context) error { return f.Serve(ctx, l) }
	query = func(ctx context.Context) error { f.Run(ctx); return nil }
	return serve, query, nil
}

func listenVDN(r *config.ResolvedVDN) (l net.Listener, err error) {
	if r.Socket != "" {
		l, err = status.Listen(r.Socket)
	} else {
		l, err = net.Listen("tcp", r.Listen)
	}
	if err == nil && r.TLS != nil {
		l = tls.NewListener(l, r.TLS)
	}
	return l, err
}
