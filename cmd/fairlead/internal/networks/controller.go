// Package networks runs the controller and the node agents of virtual networks.
//
// Flags are defined by the commands; networks, their store and their enforcement are up to
// package vdn and those below it. Whole controllers run in the scripts of cmd/fairlead.
package networks

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/socket"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/daemon"
	source "github.com/fairlead/fairlead/source/kube"
	"github.com/fairlead/fairlead/vdn/audit"
	"github.com/fairlead/fairlead/vdn/federation"
	"github.com/fairlead/fairlead/vdn/kube"
	"github.com/fairlead/fairlead/vdn/page"
	"github.com/fairlead/fairlead/vdn/server"
	"github.com/fairlead/fairlead/vdn/store"
	"github.com/fairlead/fairlead/vdn/store/etcd"
)

// RunController runs a controller until ctx is canceled.
func RunController(ctx context.Context, c config.VDN) error {
	r, err := c.Resolve()
	if err != nil {
		return err
	}
	kept, err := openStore(ctx, r)
	if err != nil {
		return err
	}
	return errors.Join(answer(ctx, r, kept), kept.Close())
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

// answer serves and queries until ctx is canceled, or one of its parts fails.
func answer(ctx context.Context, r *config.ResolvedVDN, kept *store.Store) (err error) {
	var trail *audit.Log
	if r.AuditLog != "" {
		if trail, err = audit.Open(r.AuditLog, slog.Default()); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, trail.Close()) }()
	}
	l, err := listen(r)
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
			if err := daemon.Together(ctx, follow, query); err != nil {
				return err
			}
			<-ctx.Done() // keep leading even without work
			return nil
		})
	}
	return daemon.Together(ctx, serve, lead, func(ctx context.Context) error { return s.Serve(ctx, l) })
}

// whereStored returns the location of the store, for the log.
func whereStored(r *config.ResolvedVDN) string {
	if r.Store != nil {
		return "etcd " + r.Store.Prefix
	}
	return r.Data
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

func listen(r *config.ResolvedVDN) (l net.Listener, err error) {
	if r.Socket != "" {
		l, err = socket.Listen(r.Socket)
	} else {
		l, err = net.Listen("tcp", r.Listen)
	}
	if err == nil && r.TLS != nil {
		l = tls.NewListener(l, r.TLS)
	}
	return l, err
}
