package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/config"
)

// etcdFlags say where the store is that controllers share.
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
