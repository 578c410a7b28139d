package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/networks"
)

// etcdFlags adds the flags of the etcd that controllers share.
func etcdFlags(cmd *cobra.Command, c *config.Etcd) {
	f := cmd.Flags()
	f.StringSliceVar(&c.Endpoints, "etcd-endpoints", nil, "`URL` of the etcd members that the controllers share; repeatable")
	f.StringVar(&c.Prefix, "etcd-prefix", "", "`PREFIX` of the keys (default: /fairlead/vdn/DOMAIN)")
	f.StringVar(&c.Cert, "etcd-cert", "", "`FILE` with the client certificate (PEM)")
	f.StringVar(&c.Key, "etcd-key", "", "`FILE` with its key (PEM)")
	f.StringVar(&c.CA, "etcd-ca", "", "`FILE` with etcd's CA (PEM; default: the system's)")
	f.StringVar(&c.User, "etcd-user", "", "`USER` of etcd")
	f.StringVar(&c.PasswordFile, "etcd-password-file", "", "`FILE` with the password")
}

func newVDNCopyCommand() *cobra.Command {
	c := defaultVDN()
	cmd := &cobra.Command{
		Use:   "copy-store",
		Short: "Copy a controller's state directory to an empty etcd",
		Long: `Copy the state of a controller from its directory to etcd, for several controllers
that share it. Stop the controller first and start the others afterwards. The
directory is not changed.`,
		Example: `  fairlead vdn copy-store --data /var/lib/fairlead/vdn --domain daejeon.example --etcd-endpoints https://10.0.0.5:2379 --etcd-ca ca.crt --etcd-cert vdn.crt --etcd-key vdn.key`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(c.Etcd.Endpoints) == 0 {
				return fmt.Errorf("--etcd-endpoints: required")
			}
			r, err := c.Resolve()
			if err != nil {
				return err
			}
			return networks.CopyStore(cmd.Context(), cmd.OutOrStdout(), r)
		},
	}
	cmd.Flags().StringVar(&c.Data, "data", c.Data, "`DIR` to copy")
	cmd.Flags().StringVar(&c.Domain, "domain", c.Domain, "DNS `NAME` of the domain")
	etcdFlags(cmd, &c.Etcd)
	return cmd
}
