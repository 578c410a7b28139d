package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/internal/cli"
	"github.com/fairlead/fairlead/lab/bench/calibrate"
	"github.com/fairlead/fairlead/lab/sandbox"
)

func newSimCalibrateCommand() *cobra.Command {
	o := calibrate.DefaultOptions()
	out := benchOutput{format: "table"}
	var fairlead product
	cmd := &cobra.Command{
		Use:   "calibrate",
		Short: "Set what the simulator predicts of this machine's lab beside what that does",
		Long: `Calibrate measures what the balancer's program takes here for a packet, by
BPF_PROG_TEST_RUN, and what a shaped link of the lab carries. By these the simulator
predicts how many packets come through, and how many are lost, with one balancer and
more behind a router, each with a link of the same rate, and when one of them is cut
off. The same is then measured in the lab: real agents, reflector and router in
network namespaces.

It needs root. Everything happens in namespaces that end with it.`,
		Example: `  fairlead-lab sim calibrate
  fairlead-lab sim calibrate --balancers 2 --duration 4s -o json`,
		Args: cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) (err error) {
			o.Binary, err = fairlead.find()
			return errors.Join(err, o.Validate(), out.validate())
		},
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := sandbox.Enter(sandbox.Options{Name: "bench", Net: true}); err != nil {
				return err
			}
			o.Logs, o.Progress = sandbox.WorkDir, cmd.ErrOrStderr()
			result, err := calibrate.Run(cmd.Context(), o)
			return errors.Join(err, writeCalibration(cmd, &out, result))
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Balancers, "balancers", o.Balancers, "up to how many balancers")
	f.Uint64Var(&o.LinkRate, "link-rate", o.LinkRate, "of each balancer's link, in `bits` a second")
	f.IntVar(&o.Rate, "rate", o.Rate, "packets a second that are sent")
	f.IntVar(&o.Flows, "flows", o.Flows, "flows that they are of")
	f.DurationVar(&o.Duration, "duration", o.Duration, "how long each case is loaded")
	f.IntVar(&o.Seeds, "seeds", o.Seeds, "seeds that are predicted with")
	f.StringVar(&out.dir, "out", filepath.Join("out", "sim"), "`folder` for the figures")
	fairlead.flag(cmd)
	out.formatFlag(cmd)
	return cmd
}

// writeCalibration writes and prints the available results.
func writeCalibration(cmd *cobra.Command, out *benchOutput, r *calibrate.Result) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(out.dir, "calibrate.json")
	if err := errors.Join(os.MkdirAll(out.dir, 0o755), os.WriteFile(path, append(text, '\n'), 0o644)); err != nil {
		return err
	}
	if out.format == "json" {
		return cli.PrintJSON(cmd.OutOrStdout(), r)
	}
	if err := r.WriteTable(cmd.OutOrStdout()); err != nil {
		return err
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), "written to", path)
	return err
}
