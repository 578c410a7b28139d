package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/bench/ipvsbench"
)

func newBenchIPVSCommand() *cobra.Command {
	o := ipvsbench.DefaultOptions()
	var out benchOutput
	cmd := &cobra.Command{
		Use:   "ipvs",
		Short: "Measure how long adding one service to many takes, with IPVS and iptables",
		Long: `Measure how long the IPVS data plane takes to add one service to many, compared with
the netlink calls only and with iptables rules in the form of kube-proxy: the table
"IPVS vs. IPTables Latency to Add Rules" of the slides "Scale Kubernetes to Support
50,000 Services", and one more size. Goal: the published 2 ms at any size. If this
kernel has no IPVS, measure in a guest that has it; this needs a checkout.

Requires root. Everything runs in namespaces that end with the command.`,
		Example: `  fairlead-lab bench ipvs
  fairlead-lab bench ipvs --sizes 1,1000 --runs 11`,
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return errors.Join(o.Validate(), out.format.Validate()) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runBenchPrograms(cmd, &out, func() (*bench.Report, error) {
				o.Progress = cmd.ErrOrStderr()
				return ipvsbench.Run(cmd.Context(), o)
			})
		},
	}
	cmd.Flags().IntSliceVar(&o.Sizes, "sizes", o.Sizes, "numbers of existing services, ascending")
	cmd.Flags().IntVar(&o.Runs, "runs", o.Runs, "services that are added at each size")
	cmd.Flags().DurationVar(&o.IPTables, "iptables", o.IPTables, "time limit for iptables at a size; larger sizes are skipped")
	out.flags(cmd)
	return cmd
}
