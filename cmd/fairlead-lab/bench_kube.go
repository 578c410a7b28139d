package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/internal/labcmd"
	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/bench/kubeproxy"
	"github.com/fairlead/fairlead/lab/bench/rules"
	"github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/lab/uml"
)

func newBenchKubeCommand() *cobra.Command {
	o := kubeproxy.DefaultOptions()
	var out benchOutput
	var fairlead labcmd.Product
	cmd := &cobra.Command{
		Use:   "kube",
		Short: "Measure the service proxy with very many Services, compared with kube-proxy",
		Long: `Run etcd and kube-apiserver with very many Services, and measure the service proxy:
the time to start, the cost of changes one at a time and many per second, memory,
packet loss when it is killed, and the cost of a rolling update. Kubernetes' own
kube-proxy (nftables) is measured in the same run, alternating with Fairlead with
the same number of Services, with the ratio of each round. This number is lower,
because with 50,000 Services kube-proxy needs more than ten minutes per start.

A change counts when the kernel has it. The programs of Kubernetes are taken from
the folder in FAIRLEAD_KUBE_BIN, or built from the checkout in the working
directory.

Requires root. Everything runs in namespaces that end with the command.`,
		Example: `  fairlead-lab bench kube
  fairlead-lab bench kube --services 1000 --duration 5s --starts 1
  fairlead-lab bench kube --peer-services 0 --only start,change -o json
  fairlead-lab bench kube --peer-services 50000 --starts 1 --only start,add,change`,
		Args: cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) (err error) {
			o.Binary, err = fairlead.Find()
			return errors.Join(err, o.Validate(), out.format.Validate())
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return runBenchKube(cmd, o, &out) },
	}
	f := cmd.Flags()
	f.IntVar(&o.Services, "services", o.Services, "number of Services")
	f.IntVar(&o.Endpoints, "endpoints", o.Endpoints, "number of endpoints per Service")
	f.IntVar(&o.PeerServices, "peer-services", o.PeerServices, "number of Services for kube-proxy; 0 skips it")
	f.IntVar(&o.BigServices, "big-services", o.BigServices, "number of Services with many endpoints, in a separate cluster")
	f.IntVar(&o.BigEndpoints, "big-endpoints", o.BigEndpoints, "number of endpoints per Service there")
	f.IntVar(&o.Starts, "starts", o.Starts, "number of starts of the proxy from nothing, and of rounds with kube-proxy")
	f.IntVar(&o.Changes, "changes", o.Changes, "number of changes that are measured one at a time")
	f.IntVar(&o.Connects, "connects", o.Connects, "number of connections to the first and to the last Service")
	f.IntVar(&o.Rate, "rate", o.Rate, "continuous changes per second")
	f.DurationVar(&o.Duration, "duration", o.Duration, "duration of continuous changes")
	f.IntVar(&o.RollingPods, "rolling-pods", o.RollingPods, "number of pods that are replaced, one at a time")
	f.IntVar(&o.RollingServices, "rolling-services", o.RollingServices, "number of Services of each of these pods")
	f.StringSliceVar(&o.Only, "only", o.Only, "parts to measure")
	f.StringVar(&o.Logs, "logs", "", "`folder` for the logs of all processes")
	fairlead.Flag(cmd)
	out.flags(cmd)
	_ = cmd.RegisterFlagCompletionFunc("only", cobra.FixedCompletions(kubeproxy.Parts, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func runBenchKube(cmd *cobra.Command, o kubeproxy.Options, out *benchOutput) error {
	if err := kube.Prepare("etcd", "kube-apiserver", "kube-proxy"); err != nil {
		return err
	}
	return runBenchPrograms(cmd, out, func() (*bench.Report, error) {
		o.Progress = cmd.ErrOrStderr()
		return kubeproxy.Run(cmd.Context(), o)
	})
}

// newBenchKubeFloorCommand returns the command that is the baseline for a start in bench
// kube.
func newBenchKubeFloorCommand() *cobra.Command {
	var kubeconfig string
	var entries int
	cmd := &cobra.Command{
		Use:     "kube-floor",
		Short:   "List Services and write entries, as the baseline of bench kube",
		Hidden:  true,
		Example: `  fairlead-lab bench kube-floor --kubeconfig admin.kubeconfig --entries 200000`,
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error {
			if kubeconfig == "" || entries < 0 {
				return fmt.Errorf("--kubeconfig, --entries: want a file, and a non-negative number")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return kubeproxy.Floor(cmd.Context(), kubeconfig, entries, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig `file` of the API server")
	cmd.Flags().IntVar(&entries, "entries", 0, "number of entries to write")
	return cmd
}

func newBenchRulesCommand() *cobra.Command {
	o := rules.DefaultOptions()
	var out benchOutput
	cmd := &cobra.Command{
		Use:   "rules",
		Short: "Compare implementations of Services: iptables, a search tree of it, nftables, IPVS, eBPF",
		Long: `Write a growing number of Services to the kernel with several implementations: a
linear list of iptables rules, as kube-proxy does, the same as a search tree over
networks of 16 and 24 bits, maps of nftables, IPVS, and Fairlead's eBPF maps. For each
measure the cost of adding a Service, and of connections to the first, the middle and
the last one. If this kernel has no IPVS, measure IPVS, and both kinds of iptables
again, in a guest that has it; this needs a checkout. Then pods come up behind some
Services, and the writes of the service proxy are counted, with and without batching.
With --transfers, measure also bandwidth to the first and to the last Service.

Requires root, iptables (with its legacy variant) and nft. Everything runs in
namespaces that end with the command.`,
		Example: `  fairlead-lab bench rules
  fairlead-lab bench rules --services 1,5000 --only iptables,ebpf
  fairlead-lab bench rules --only iptables,ipvs --endpoints 1 --transfers 10`,
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return errors.Join(o.Validate(), out.format.Validate()) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runBenchPrograms(cmd, &out, func() (*bench.Report, error) {
				o.Progress = cmd.ErrOrStderr()
				return benchRules(cmd.Context(), o)
			})
		},
	}
	f := cmd.Flags()
	f.IntSliceVar(&o.Services, "services", o.Services, "`number`s of Services, ascending")
	f.StringSliceVar(&o.Ways, "only", o.Ways, "implementations to compare")
	f.IntVar(&o.Adds, "adds", o.Adds, "number of measurements of adding a Service")
	f.IntVar(&o.Endpoints, "endpoints", o.Endpoints, "endpoints of each Service")
	f.IntVar(&o.Connects, "connects", o.Connects, "number of connections per figure")
	f.IntVar(&o.Transfers, "transfers", o.Transfers, "measurements of each bandwidth, with iptables and ipvs only, and four ports per Service; 0 skips this")
	f.DurationVar(&o.Limit, "limit", o.Limit, "time limit per implementation and number of Services; larger numbers are skipped")
	f.IntSliceVar(&o.Batches, "batches", o.Batches, "`number`s of Services behind which pods come up; 0 skips this")
	f.IntVar(&o.Rate, "rate", o.Rate, "pods that come up per second")
	f.DurationVar(&o.Window, "window", o.Window, "batching period of changes, like the agent's --sync-min-period")
	f.DurationVar(&o.MaxDelay, "max-delay", o.MaxDelay, "maximum delay of a change, like its --sync-max-delay")
	out.flags(cmd)
	_ = cmd.RegisterFlagCompletionFunc("only", cobra.FixedCompletions(rules.Ways, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// benchRules measures each alternative where its requirements are met. If this kernel has
// no IPVS, IPVS is measured in a guest, along with what it is compared with.
func benchRules(ctx context.Context, o rules.Options) (*bench.Report, error) {
	if uml.HasIPVS() || !slices.Contains(o.Ways, rules.IPVS) {
		return rules.Run(ctx, o)
	}
	guest := o
	guest.Ways = slices.DeleteFunc(slices.Clone(o.Ways), func(w string) bool { return w == rules.NFTables || w == rules.EBPF })
	report := bench.New("rules")
	if o.Ways = slices.DeleteFunc(slices.Clone(o.Ways), func(w string) bool { return w == rules.IPVS }); o.Transfers == 0 {
		var err error
		if report, err = rules.Run(ctx, o); err != nil {
			return report, err
		}
	}
	fmt.Fprintln(o.Progress, "in a guest:")
	inside, err := rules.InGuest(ctx, guest)
	if err != nil {
		return report, err
	}
	for _, row := range inside.Rows {
		row.Case = "in a guest: " + row.Case
		report.Rows = append(report.Rows, row)
	}
	for _, note := range inside.Notes {
		report.Note("in a guest: %s", note)
	}
	return report, nil
}
