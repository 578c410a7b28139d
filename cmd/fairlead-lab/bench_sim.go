package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/lab/bench/simulator"
)

func newBenchSimCommand() *cobra.Command {
	o := simulator.Options{Rounds: 7, Seconds: 5}
	var out benchOutput
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Measure the simulator, beside ns-2",
		Long: `Sim measures the processor time that a simulated second takes, with one server and
with twelve, on both clocks, and that of ns-2 in turns, where it is installed. The
replies that ns-2 counts must be those of the clock compat. Goal: at most 0.7 of
ns-2's time with compat and 0.25 with scale, and 100 ms to set up 1,000 clients.`,
		Example: `  fairlead-lab bench sim
  fairlead-lab bench sim --rounds 3 -o json`,
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return errors.Join(o.Validate(), out.validate()) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Progress = cmd.ErrOrStderr()
			report, err := simulator.Measure(cmd.Context(), o)
			if err != nil {
				return err
			}
			return out.finish(cmd, report)
		},
	}
	cmd.Flags().IntVar(&o.Rounds, "rounds", o.Rounds, "how often each figure is measured")
	cmd.Flags().IntVar(&o.Seconds, "seconds", o.Seconds, "seconds that each case simulates")
	out.flags(cmd)
	return cmd
}
