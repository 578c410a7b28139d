package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/internal/cli"
	"github.com/fairlead/fairlead/cmd/internal/labcmd"
	"github.com/fairlead/fairlead/lab/bench/calibrate"
	"github.com/fairlead/fairlead/lab/sandbox"
)

func newSimCalibrateCommand() *cobra.Command {
	o := calibrate.DefaultOptions()
	var out benchOutput
	var fairlead labcmd.Product
	cmd := &cobra.Command{
		Use:   "calibrate",
		Short: "Compare the simulator's predictions with measurements on this machine",
		Long: `Measure the time per packet of the balancer's program on this machine, with
BPF_PROG_TEST_RUN, and the capacity of a shaped link of the lab. From these the
simulator predicts how many packets arrive and how many are lost, with one balancer
and more behind a router, each with a link of the same rate, and when one of them is
cut off. The same is then measured in the lab: real agents, reflector and router in
network namespaces.

Requires root. Everything runs in namespaces that end with the command.`,
		Example: `  fairlead-lab sim calibrate
  fairlead-lab sim calibrate --balancers 2 --duration 4s -o json`,
		Args: cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) (err error) {
			o.Binary, err = fairlead.Find()
			return errors.Join(err, o.Validate(), out.format.Validate())
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
	f.IntVar(&o.Balancers, "balancers", o.Balancers, "maximum number of balancers")
	f.Uint64Var(&o.LinkRate, "link-rate", o.LinkRate, "rate of each balancer's link, in `bits` per second")
	f.IntVar(&o.Rate, "rate", o.Rate, "packets sent per second")
	f.IntVar(&o.Flows, "flows", o.Flows, "number of flows")
	f.DurationVar(&o.Duration, "duration", o.Duration, "duration of the load per case")
	f.IntVar(&o.Seeds, "seeds", o.Seeds, "number of seeds of the predictions")
	f.StringVar(&out.dir, "out", filepath.Join("out", "sim"), "`folder` for the results")
	fairlead.Flag(cmd)
	out.format.Flag(cmd)
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
	if out.format == labcmd.JSON {
		return cli.PrintJSON(cmd.OutOrStdout(), r)
	}
	if err := r.WriteTable(cmd.OutOrStdout()); err != nil {
		return err
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), "written to", path)
	return err
}
