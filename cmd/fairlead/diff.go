package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/preview"
	"github.com/fairlead/fairlead/cmd/internal/cli"
)

func newDiffCommand() *cobra.Command {
	var d preview.Diff
	cmd := &cobra.Command{
		Use:   "diff FILE...|DIR",
		Short: "Show what other manifests would change, and which connections would break",
		Long: `Send manifests to the running agent, which plans with them and lays out Maglev
tables as it would, and changes nothing. Print the frontends, backends and routes
that would change, and the tracked connections that would break, with the reason.

A DIR stands for the complete --manifest-dir of the agent, a FILE for the file of
the same name in it. Backends whose health is not known yet count as healthy.

Connections to Services with second chance or hash-only are tracked by the DSR
agents on the backends' nodes: pass their flows with --flows to count those, too.

Exit codes: 0 no change, 1 changes, 2 error.`,
		Example: `  fairlead diff /tmp/services
  fairlead diff -o json web.yaml
  fairlead get flows --limit 0 -o json --socket /run/fairlead/dsr.sock > flows.json
  fairlead diff --flows flows.json web.yaml`,
		Args:    cobra.MinimumNArgs(1),
		GroupID: groupQuery,
		RunE: func(cmd *cobra.Command, paths []string) error {
			different, err := d.Run(cmd, paths)
			switch {
			case err != nil:
				return config.Invalid(err) // exit code 2
			case different:
				return cli.ErrDifferent
			}
			return nil
		},
	}
	d.BasicFlags(cmd)
	cmd.Flags().StringArrayVar(&d.Flows, "flows", nil, "`FILE` with flows that other agents track, as get flows -o json prints them; repeatable")
	_ = cmd.MarkFlagFilename("flows", "json")
	return cmd
}
