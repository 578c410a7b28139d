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
		Short: "Measure the simulator, compared with ns-2",
		Long: `Measure the CPU time per simulated second, with one server and with twelve, on both
clocks, alternating with ns-2 if it is installed. The replies that ns-2 counts must
equal those of the clock compat. Goal: at most 0.7 of ns-2's time with compat and
0.25 with scale, and 100 ms to set up 1,000 clients.`,
		Example: `  fairlead-lab bench sim
  fairlead-lab bench sim --rounds 3 -o json`,
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return errors.Join(o.Validate(), out.format.Validate()) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Progress = cmd.ErrOrStderr()
			report, err := simulator.Measure(cmd.Context(), o)
			if err != nil {
				return err
			}
			return out.finish(cmd, report)
		},
	}
	cmd.Flags().IntVar(&o.Rounds, "rounds", o.Rounds, "number of measurements per figure")
	cmd.Flags().IntVar(&o.Seconds, "seconds", o.Seconds, "simulated seconds per case")
	out.flags(cmd)
	return cmd
}
