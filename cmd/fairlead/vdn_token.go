package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/vdn/access"
)

func newVDNTokenCommand() *cobra.Command {
	var e access.Entry
	var out string
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make a token, and its entry for the controller's --access-file",
		Long: `Token writes a new token to a file, and prints its entry, which has only the token's
hash: append it to the list "tokens:" of the controllers' --access-file.

Roles: admin may do everything. A tenant makes, changes and sees its own networks. A node
has its own plan, and leases for its own pods. A reader sees everything and changes
nothing.`,
		Example: `  fairlead vdn token --name ops --role admin --out ops.token
  fairlead vdn token --name lab --role tenant --networks science,lab-* --out lab.token
  fairlead vdn token --name node-1 --role node --node node-1 --out node-1.token`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			token, e, err := access.New(e)
			if err != nil {
				return err
			}
			text, err := yaml.Marshal([]access.Entry{e})
			if err != nil {
				return err
			}
			file, err := os.OpenFile(out, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
			if err != nil {
				return fmt.Errorf("--out: %w", err)
			}
			_, err = file.WriteString(token + "\n")
			if closed := file.Close(); err == nil {
				err = closed
			}
			if err != nil {
				return fmt.Errorf("--out: %w", err)
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&e.Name, "name", "", "`name` of the token in the audit log")
	f.StringVar((*string)(&e.Role), "role", "", "`role`: admin, tenant, node or reader")
	f.StringSliceVar(&e.Networks, "networks", nil, "`names` of a tenant's networks, or beginnings of names like lab-*")
	f.StringVar(&e.Node, "node", "", "`name` of the node that may use the token; * for any")
	f.StringVar(&out, "out", "", "new `file` for the token")
	for _, needed := range []string{"name", "role", "out"} {
		_ = cmd.MarkFlagRequired(needed) // fails only for an undefined flag
	}
	return cmd
}
