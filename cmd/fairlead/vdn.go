package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/networks"
)

// defaultVDN is the controller's configuration without flags.
func defaultVDN() config.VDN {
	return config.VDN{Data: config.DefaultVDNData, Domain: "local", Listen: "127.0.0.1:7473"}
}

func newVDNCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "vdn",
		Short:   "Run and query virtual networks",
		Long:    `Run the controller and the node agents of virtual networks, and query them.`,
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
		Short: "Run the controller of virtual networks",
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
		RunE: func(cmd *cobra.Command, _ []string) error { return networks.RunController(cmd.Context(), c) },
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
