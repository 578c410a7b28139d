package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/vdn/store"
	"github.com/fairlead/fairlead/vdn/store/etcd"
	"github.com/fairlead/fairlead/vdn/store/file"
)

// etcdFlags adds the flags for the shared store of controllers.
func etcdFlags(cmd *cobra.Command, c *config.Etcd) {
	f := cmd.Flags()
	f.StringSliceVar(&c.Endpoints, "etcd-endpoints", nil, "`URL` of each member of the etcd that several controllers share")
	f.StringVar(&c.Prefix, "etcd-prefix", "", "`prefix` of the keys there (default: /fairlead/vdn/DOMAIN)")
	f.StringVar(&c.Cert, "etcd-cert", "", "`file` with the certificate that etcd knows us by (PEM)")
	f.StringVar(&c.Key, "etcd-key", "", "`file` with its key (PEM)")
	f.StringVar(&c.CA, "etcd-ca", "", "`file` with the certificates that etcd's are signed by (PEM; default: the system's)")
	f.StringVar(&c.User, "etcd-user", "", "`name` of an account of etcd's")
	f.StringVar(&c.PasswordFile, "etcd-password-file", "", "`file` with its password")
}

func newVDNCopyCommand() *cobra.Command {
	c := defaultVDN()
	cmd := &cobra.Command{
		Use:   "copy-store",
		Short: "Copy the networks and leases of a folder into an empty etcd",
		Long: `Copy-store copies all that a controller keeps in a folder into etcd, for controllers
that share it from then on. Stop the controller before, and start the others after it.
The folder stays as it is.`,
		Example: `  fairlead vdn copy-store --data /var/lib/fairlead/vdn --domain daejeon.example --etcd-endpoints https://10.0.0.5:2379 --etcd-ca ca.crt --etcd-cert vdn.crt --etcd-key vdn.key`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(c.Etcd.Endpoints) == 0 {
				return fmt.Errorf("--etcd-endpoints: name the members of the etcd to copy into")
			}
			r, err := c.Resolve()
			if err != nil {
				return err
			}
			return copyStore(cmd.Context(), cmd.OutOrStdout(), r)
		},
	}
	cmd.Flags().StringVar(&c.Data, "data", c.Data, "`folder` to copy")
	cmd.Flags().StringVar(&c.Domain, "domain", c.Domain, "DNS `name` of the domain")
	etcdFlags(cmd, &c.Etcd)
	return cmd
}

func copyStore(ctx context.Context, out io.Writer, r *config.ResolvedVDN) error {
	from, err := file.Open(r.Data)
	if err != nil {
		return err
	}
	to, err := etcd.Open(ctx, *r.Store)
	if err != nil {
		return errors.Join(err, from.Close())
	}
	n, err := store.Copy(ctx, from, to)
	if err == nil {
		fmt.Fprintf(out, "%d values of %s are in etcd below %s\n", n, r.Data, r.Store.Prefix)
	}
	return errors.Join(err, from.Close(), to.Close())
}
