package main

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/config"
	source "github.com/fairlead/fairlead/source/kube"
	"github.com/fairlead/fairlead/status"
	"github.com/fairlead/fairlead/vdn/federation"
	"github.com/fairlead/fairlead/vdn/kube"
	"github.com/fairlead/fairlead/vdn/page"
	"github.com/fairlead/fairlead/vdn/server"
	"github.com/fairlead/fairlead/vdn/store"
)

func newVDNCommand() *cobra.Command {
	c := config.VDN{Data: config.DefaultVDNData, Domain: "local", Listen: "127.0.0.1:7473"}
	cmd := &cobra.Command{
		Use:   "vdn",
		Short: "Run the controller of virtually dedicated networks",
		Long: `Vdn keeps the networks of a domain: who is in them, with which addresses, what
they are guaranteed and allowed, and whom they reach. fairlead-cni and others ask
it by REST; nodes ask it what to enforce. What it has told is on disk before: it
may be killed at any moment, and goes on where it was.

It answers other machines by TLS only. With --token-file every request must bear
the token. With --kubernetes the networks are a cluster's VirtualNetworks, and leases
show as NetworkAttachments beside their pods.`,
		Example: `  fairlead vdn --data /var/lib/fairlead/vdn
  fairlead vdn --domain daejeon.example --listen 10.0.0.5:7473 --tls-cert vdn.crt --tls-key vdn.key --token-file token
  fairlead vdn --listen unix:///run/fairlead/vdn/api.sock
  fairlead vdn --domain daejeon.example --federation-listen :7474 --federation-cert daejeon.crt --federation-key daejeon.key --federation-ca ca.crt`,
		Args:    cobra.NoArgs,
		GroupID: groupRun,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runVDN(cmd.Context(), c) },
	}
	f := cmd.Flags()
	f.StringVar(&c.Data, "data", c.Data, "`folder` to keep what it knows in")
	f.StringVar(&c.Domain, "domain", c.Domain, "DNS `name` that other domains know this one by")
	f.StringVar(&c.Listen, "listen", c.Listen, "`address:port` to answer on, or unix:///path")
	f.StringVar(&c.TLSCert, "tls-cert", "", "`file` with our certificate (PEM)")
	f.StringVar(&c.TLSKey, "tls-key", "", "`file` with its key (PEM)")
	f.StringVar(&c.TokenFile, "token-file", "", "`file` with the token that every request must bear")
	f.BoolVar(&c.Kubernetes, "kubernetes", false, "have a cluster's VirtualNetworks as networks, and no others")
	f.StringVar(&c.Kubeconfig, "kubeconfig", "", "`file` that says how to reach the API server (default: as the pod that this is)")
	f.StringVar(&c.FederationListen, "federation-listen", "", "`address:port` to tell other domains on what is shared with them; none where empty")
	f.StringVar(&c.FederationKeys.Cert, "federation-cert", "", "`file` with the certificate of our domain (PEM), for its name")
	f.StringVar(&c.FederationKeys.Key, "federation-key", "", "`file` with its key (PEM)")
	f.StringVar(&c.FederationKeys.CA, "federation-ca", "", "`file` with the authorities of other domains' certificates (PEM)")
	cmd.AddCommand(newVDNNetworksCommand(), newVDNAttachmentsCommand(), newVDNNodesCommand(), newVDNPeersCommand(),
		newVDNApplyCommand(), newVDNDeleteCommand(), newVDNNodeCommand(), newInstallCNICommand())
	return cmd
}

func runVDN(ctx context.Context, c config.VDN) error {
	r, err := c.Resolve()
	if err != nil {
		return err
	}
	kept, err := store.Open(r.Data, r.Domain)
	if err != nil {
		return err
	}
	return errors.Join(answerVDN(ctx, r, kept), kept.Close())
}

// answerVDN answers and asks until ctx ends, or one of these fails.
func answerVDN(ctx context.Context, r *config.ResolvedVDN, kept *store.Store) error {
	l, err := listenVDN(r)
	if err != nil {
		return err
	}
	slog.Info("answering", "address", l.Addr(), "domain", r.Domain, "data", r.Data, "revision", kept.Revision())
	o := server.Options{Store: kept, Token: r.Token, Page: page.Handler(), Log: slog.Default()}
	cluster, err := newVDNSync(r, kept)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	if cluster != nil {
		o.Elsewhere = "the cluster's VirtualNetworks: change those, as by kubectl apply"
	}
	s := server.New(o)
	run, err := federate(r, s)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	if cluster != nil {
		run = append(run, cluster.Run)
	}
	all, ctx := errgroup.WithContext(ctx)
	for _, f := range append(run, func(ctx context.Context) error { return s.Serve(ctx, l) }) {
		all.Go(func() error { return f(ctx) })
	}
	return all.Wait()
}

// newVDNSync gives what keeps the store and a cluster alike; nil for no cluster.
func newVDNSync(r *config.ResolvedVDN, kept *store.Store) (*kube.Sync, error) {
	if !r.Kubernetes {
		return nil, nil
	}
	way, err := source.Connection(r.Kubeconfig)
	if err != nil {
		return nil, err
	}
	return kube.New(kube.Config{Client: way, Store: kept, Log: slog.Default()})
}

// federate gives what tells other domains, and asks them, where that is wanted.
func federate(r *config.ResolvedVDN, s *server.Server) (run []func(context.Context) error, err error) {
	if r.FederationListen == "" {
		return nil, nil
	}
	f, err := federation.New(s, federation.Options{Keys: r.FederationKeys, Log: slog.Default()})
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", r.FederationListen)
	if err != nil {
		return nil, err
	}
	tell := func(ctx context.Context) error { return f.Serve(ctx, l) }
	ask := func(ctx context.Context) error { f.Run(ctx); return nil }
	return append(run, tell, ask), nil
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
