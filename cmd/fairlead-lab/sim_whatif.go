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
		Short: "Calculate how many balancers your manifests need, and what each event breaks",
		Long: `Take Services with their servers, schedulers and forwarding modes from a folder of
manifests, as an agent does, and the topology, the load and the events from a
scenario. Report which frontends balancers would program, and why the others are
rejected; how many balancers are needed to meet the scenario's goals, also if one of
them fails; and what each event costs. Ctrl-C keeps the results so far.`,
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
			return some.whatIf(cmd, &o, dir, file, times)
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return runSim(cmd, some, &o) },
	}
	o.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&dir, "manifests", "", "`folder` of manifests: Services and EndpointSlices")
	f.StringVar(&file, "scenario", "", "`file` of the scenario, without services")
	f.Float64Var(&times, "times", 1, "`factor` for the load of the scenario")
	_ = cmd.MarkFlagRequired("manifests")
	_ = cmd.MarkFlagRequired("scenario")
	return cmd
}

// whatIf adds the what-if scenario for the manifests in a directory.
func (s *simulated) whatIf(cmd *cobra.Command, o *simOptions, dir, file string, times float64) error {
	snapshot, err := readOnce(cmd.Context(), dir)
	if err != nil {
		return err
	}
	for _, p := range snapshot.Problems {
		fmt.Fprintln(cmd.ErrOrStderr(), "rejected:", p)
	}
	text, err := limit.ReadFile(file, limit.Text)
	if err != nil {
		return err
	}
	c, refused, err := scenario.ParseFor(snapshot.Services, file, text, filesNextTo(file))
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
