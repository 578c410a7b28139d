package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/bench/peers"
)

func newBenchPeersCommand() *cobra.Command {
	o := peers.Options{Rounds: 15}
	var out benchOutput
	cmd := &cobra.Command{
		Use:   "peers",
		Short: "Measure the load balancer's programs next to those of other load balancers",
		Long: `Measure the load balancer with second chance and with a flow table, minimal programs
(the floors) and Katran with and without its flow table, all in the same harness, with
the same VIPs, backends, packets and sizes of flow tables. The programs alternate round
by round. Goals are ratios to the peer, or to the floor, in the same run.

--katran is a folder with Katran's sources. They are compiled with clang (BPF_CLANG,
default clang-19) into a temporary folder. Without it, only the load balancer and the
floors are measured.

With --growth, the numbers of flows, VIPs and backends grow, without goals: the page
shows the curves.

Requires root. Everything runs in namespaces that end with the command.`,
		Example: `  fairlead-lab bench peers
  fairlead-lab bench peers --katran ../katran
  fairlead-lab bench peers --katran ../katran --only '1 M flows' --rounds 31
  fairlead-lab bench peers --katran ../katran --growth --rounds 5`,
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return errors.Join(o.Validate(), out.format.Validate()) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runBenchPrograms(cmd, &out, func() (*bench.Report, error) {
				o.Progress = cmd.ErrOrStderr()
				return peers.Measure(cmd.Context(), o)
			})
		},
	}
	cmd.Flags().StringVar(&o.Katran, "katran", "", "`folder` with the sources of Katran")
	cmd.Flags().IntVar(&o.Rounds, "rounds", o.Rounds, "number of measurements per figure")
	cmd.Flags().StringVar(&o.Only, "only", "", "measure the workloads with this `text` in their name")
	cmd.Flags().BoolVar(&o.Growth, "growth", false, "measure how the time of a packet grows with flows, VIPs and backends, instead")
	out.flags(cmd)
	return cmd
}
