package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/bench/ipvsbench"
	"github.com/fairlead/fairlead/lab/bench/kubeproxy"
	"github.com/fairlead/fairlead/lab/bench/rules"
	"github.com/fairlead/fairlead/lab/guest"
	"github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/lab/sandbox"
)

func newBenchKubeCommand() *cobra.Command {
	o := kubeproxy.DefaultOptions()
	var out benchOutput
	var fairlead product
	cmd := &cobra.Command{
		Use:   "kube",
		Short: "Measure the service proxy among very many Services, beside kube-proxy",
		Long: `Kube runs etcd and kube-apiserver with very many Services, and measures the service
proxy there: how long it takes to start, what a change costs one by one and many a
second, what memory it takes, whether packets are lost when it is killed, and what
a rolling update costs. Kubernetes' own kube-proxy (nftables) is measured in the same
run, in turns with Fairlead among as many Services, with the ratio of each round; these
are fewer, since among 50,000 it needs more than ten minutes for each start.

What counts is what the kernel holds. It needs root. The programs of Kubernetes are
those in the folder that FAIRLEAD_KUBE_BIN names, or built from the checkout that
this runs in. Everything happens in namespaces that end with it.`,
		Example: `  fairlead-lab bench kube
  fairlead-lab bench kube --services 1000 --duration 5s --starts 1
  fairlead-lab bench kube --peer-services 0 --only start,change -o json
  fairlead-lab bench kube --peer-services 50000 --starts 1 --only start,add,change`,
		Args: cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) (err error) {
			o.Binary, err = fairlead.find()
			return errors.Join(err, o.Validate(), out.validate())
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return runBenchKube(cmd, o, &out) },
	}
	f := cmd.Flags()
	f.IntVar(&o.Services, "services", o.Services, "how many Services there are")
	f.IntVar(&o.Endpoints, "endpoints", o.Endpoints, "how many endpoints each has")
	f.IntVar(&o.PeerServices, "peer-services", o.PeerServices, "how many there are for kube-proxy; 0 leaves it out")
	f.IntVar(&o.BigServices, "big-services", o.BigServices, "how many Services of many endpoints there are, in a cluster of their own")
	f.IntVar(&o.BigEndpoints, "big-endpoints", o.BigEndpoints, "how many endpoints each of these has")
	f.IntVar(&o.Starts, "starts", o.Starts, "how often the proxy is started from nothing, and rounds beside kube-proxy")
	f.IntVar(&o.Changes, "changes", o.Changes, "how many changes are measured one by one")
	f.IntVar(&o.Connects, "connects", o.Connects, "how many connections are opened to the first and to the last Service")
	f.IntVar(&o.Rate, "rate", o.Rate, "changes a second, where they go on")
	f.DurationVar(&o.Duration, "duration", o.Duration, "how long they go on")
	f.IntVar(&o.RollingPods, "rolling-pods", o.RollingPods, "pods that are replaced, one after the other")
	f.IntVar(&o.RollingServices, "rolling-services", o.RollingServices, "in how many Services each of them is")
	f.StringSliceVar(&o.Only, "only", o.Only, "what is measured")
	f.StringVar(&o.Logs, "logs", "", "`folder` to leave the logs of all processes in")
	fairlead.flag(cmd)
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
		Short:   "List Services, write entries, and no more",
		Hidden:  true,
		Example: `  fairlead-lab bench kube-floor --kubeconfig admin.kubeconfig --entries 200000`,
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error {
			if kubeconfig == "" || entries < 0 {
				return fmt.Errorf("--kubeconfig, --entries: want a file, and a number that is not negative")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return kubeproxy.Floor(cmd.Context(), kubeconfig, entries, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "`file` that says how to reach the API server")
	cmd.Flags().IntVar(&entries, "entries", 0, "how many entries are written")
	return cmd
}

func newBenchRulesCommand() *cobra.Command {
	o := rules.DefaultOptions()
	var out benchOutput
	cmd := &cobra.Command{
		Use:   "rules",
		Short: "Compare ways to hold Services: iptables, a search tree of it, nftables, IPVS, eBPF",
		Long: `Rules writes more and more Services to the kernel in several ways: rules of iptables
one after the other, as kube-proxy's, the same as a search tree over networks of 16
and 24 bits, maps of nftables, IPVS, and Fairlead's maps of eBPF. For each it measures
what one Service more costs, and connecting to the first, the middle and the last one.
Where this kernel has no IPVS that is measured in a guest that has, in a checkout, and
the two ways of iptables there once more. Then pods come up behind some Services, and
it counts how often the service proxy writes with and without gathering changes.

It needs root, iptables (with its legacy variant) and nft. Everything happens in
namespaces that end with it.`,
		Example: `  fairlead-lab bench rules
  fairlead-lab bench rules --services 1,5000 --only iptables,ebpf`,
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return errors.Join(o.Validate(), out.validate()) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runBenchPrograms(cmd, &out, func() (*bench.Report, error) {
				o.Progress = cmd.ErrOrStderr()
				return benchRules(cmd.Context(), o)
			})
		},
	}
	f := cmd.Flags()
	f.IntSliceVar(&o.Services, "services", o.Services, "`number`s of Services, growing")
	f.StringSliceVar(&o.Ways, "only", o.Ways, "the ways that are compared")
	f.IntVar(&o.Adds, "adds", o.Adds, "how often one Service more is measured")
	f.IntVar(&o.Connects, "connects", o.Connects, "how many connections each figure is of")
	f.DurationVar(&o.Limit, "limit", o.Limit, "how long one way may take for one number of Services; it is not tried with more")
	f.IntSliceVar(&o.Batches, "batches", o.Batches, "`number`s of Services behind which pods come up; 0 leaves that out")
	f.IntVar(&o.Rate, "rate", o.Rate, "how many pods come up a second")
	f.DurationVar(&o.Window, "window", o.Window, "how long changes are gathered, as the agent's --sync-min-period")
	f.DurationVar(&o.MaxDelay, "max-delay", o.MaxDelay, "how long at most, as its --sync-max-delay")
	out.flags(cmd)
	_ = cmd.RegisterFlagCompletionFunc("only", cobra.FixedCompletions(rules.Ways, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// benchRules measures each alternative where its requirements are met. If this kernel has
// no IPVS, IPVS is measured in a guest, along with what it is compared with.
func benchRules(ctx context.Context, o rules.Options) (*bench.Report, error) {
	if guest.HasIPVS() || !slices.Contains(o.Ways, rules.IPVS) {
		return rules.Run(ctx, o)
	}
	there := slices.DeleteFunc(slices.Clone(o.Ways), func(w string) bool { return w == rules.NFTables || w == rules.EBPF })
	o.Ways = slices.DeleteFunc(slices.Clone(o.Ways), func(w string) bool { return w == rules.IPVS })
	report, err := rules.Run(ctx, o)
	if err != nil {
		return report, err
	}
	fmt.Fprintln(o.Progress, "in a guest:")
	inside, err := ipvsbench.InGuest(ctx, "bench", "rules", "--output", "json", "--out", sandbox.WorkDir, "--only", strings.Join(there, ","),
		"--services", joined(o.Services), "--adds", fmt.Sprint(o.Adds), "--connects", fmt.Sprint(o.Connects), "--limit", o.Limit.String(), "--batches", "0")
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
