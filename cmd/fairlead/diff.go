package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/diff"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/api"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/query"
	"github.com/fairlead/fairlead/cmd/internal/cli"
	"github.com/fairlead/fairlead/internal/limit"
)

func newDiffCommand() *cobra.Command {
	var d diffCommand
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
			different, err := d.run(cmd, paths)
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
	cmd.Flags().StringArrayVar(&d.flows, "flows", nil, "`FILE` with flows that other agents track, as get flows -o json prints them; repeatable")
	_ = cmd.MarkFlagFilename("flows", "json")
	return cmd
}

type diffCommand struct {
	query.Query
	flows []string
}

func (d *diffCommand) run(cmd *cobra.Command, paths []string) (different bool, err error) {
	request, err := api.ReadManifests(paths)
	if err != nil {
		return false, err
	}
	for _, path := range d.flows {
		text, err := limit.ReadFile(path, limit.Answer)
		if err != nil {
			return false, err
		}
		var some []api.Flow
		if err := json.Unmarshal(text, &some); err != nil {
			return false, fmt.Errorf("%s: want the output of fairlead get flows -o json: %w", path, err)
		}
		request.Flows = append(request.Flows, some...)
	}
	body, err := json.Marshal(request)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), 5*time.Minute)
	defer cancel()
	got, err := d.Do(ctx, http.MethodPost, api.DiffPath, nil, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	defer got.Close()
	var report diff.Report
	if err := json.NewDecoder(limit.NewReader(got, "the agent's response", limit.Answer)).Decode(&report); err != nil {
		return false, fmt.Errorf("the agent's response is incomplete: %w", err)
	}
	return !report.Empty(), d.Print(cmd.OutOrStdout(), report.Sheet())
}
