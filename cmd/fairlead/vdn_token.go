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
		Short: "Create a token and its entry for --access-file",
		Long: `Write a new token to a file and print its entry, which contains only the token's
hash. Append the entry to the list "tokens:" of the controllers' --access-file.

Roles: admin may do everything. A tenant reads and changes its own networks. A node
reads its own plan and leases addresses for its own pods. A reader reads everything
and changes nothing.`,
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
	f.StringVar(&e.Name, "name", "", "`NAME` of the token in the audit log")
	f.StringVar((*string)(&e.Role), "role", "", "`ROLE`: admin, tenant, node or reader")
	f.StringSliceVar(&e.Networks, "networks", nil, "`NAMES` of a tenant's networks; lab-* matches a prefix")
	f.StringVar(&e.Node, "node", "", "`NAME` of the node that may use the token; * for any")
	f.StringVar(&out, "out", "", "new `FILE` for the token")
	for _, needed := range []string{"name", "role", "out"} {
		_ = cmd.MarkFlagRequired(needed) // fails only for a flag that does not exist
	}
	return cmd
}
