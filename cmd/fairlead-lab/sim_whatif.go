package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/internal/limit"
	"github.com/fairlead/fairlead/lab/sim/scenario"
	"github.com/fairlead/fairlead/source"
	"github.com/fairlead/fairlead/source/manifest"
)

func newSimWhatIfCommand() *cobra.Command {
	var o simOptions
	var dir, file string
	var times float64
	var some simulated
	cmd := &cobra.Command{
		Use:   "what-if",
		Short: "Ask of manifests how many balancers they need, and what breaks when",
		Long: `What-if takes Services with their servers, schedulers and methods from a folder of
manifests, as an agent does, and who is joined with whom, the load and the events
from a scenario. It says what balancers would hold, and why not the rest; how many
balancers are needed to meet the scenario's goals, and how many if one may die; and
what each event costs. Ctrl-C keeps what was done.`,
		Example: `  fairlead-lab sim what-if --manifests docs/scenarios/demo --scenario docs/scenarios/what-if/demo.yaml
  fairlead-lab sim what-if --manifests /etc/fairlead/services --scenario tomorrow.yaml --times 2.5 --seeds 5 -o json`,
		Args: cobra.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			if !(times > 0 && times <= 1000) { // NaN is out of range, too
				return fmt.Errorf("--times: %v is not between 0 and 1000", times)
			}
			return some.ask(cmd, &o, dir, file, times)
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return runSim(cmd, some, &o) },
	}
	o.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&dir, "manifests", "", "`folder` of manifests: Services and EndpointSlices")
	f.StringVar(&file, "scenario", "", "`file` of the scenario, which has no services of its own")
	f.Float64Var(&times, "times", 1, "`factor` for the load of the scenario")
	_ = cmd.MarkFlagRequired("manifests")
	_ = cmd.MarkFlagRequired("scenario")
	return cmd
}

// ask adds the what-if scenario for the manifests in a directory.
func (s *simulated) ask(cmd *cobra.Command, o *simOptions, dir, file string, times float64) error {
	snapshot, err := readOnce(cmd.Context(), dir)
	if err != nil {
		return err
	}
	for _, p := range snapshot.Problems {
		fmt.Fprintln(cmd.ErrOrStderr(), "refused:", p)
	}
	text, err := limit.ReadFile(file, limit.Text)
	if err != nil {
		return err
	}
	c, refused, err := scenario.ParseFor(snapshot.Services, file, text, beside(file))
	if err != nil {
		return err
	}
	if err := c.Times(times); err != nil {
		return fmt.Errorf("--times: %w", err)
	}
	if !cmd.Flags().Changed("seeds") {
		o.Seeds = c.Seeds
	}
	s.experiments = append(s.experiments, c.WhatIf(refused))
	return nil
}

// readOnce returns the current contents of a manifest directory.
func readOnce(ctx context.Context, dir string) (now source.Snapshot, err error) {
	if _, err := os.ReadDir(dir); err != nil { // a source would wait for it
		return now, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	err = manifest.New(dir, slog.New(slog.DiscardHandler)).Run(ctx, func(s source.Snapshot) {
		now = s
		stop()
	})
	return now, err
}
