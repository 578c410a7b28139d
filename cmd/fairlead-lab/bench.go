package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/internal/cli"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/bench/survival"
	"github.com/fairlead/fairlead/lab/bench/xdpbench"
	"github.com/fairlead/fairlead/lab/sandbox"
)

func newBenchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure Fairlead on this machine, beside its goals",
		Long: `Bench runs the experiments that Fairlead's figures come from. Each prints its
table and writes it to a file, and ends with 1 where a goal was missed.`,
		Example: `  fairlead-lab bench dataplane
  fairlead-lab bench live
  fairlead-lab bench survival
  fairlead-lab bench ipvs
  fairlead-lab bench kube
  fairlead-lab bench rules
  fairlead-lab bench ecmp
  fairlead-lab bench cni
  fairlead-lab bench sim`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBenchDataplaneCommand(), newBenchLiveCommand(), newBenchSurvivalCommand(), newBenchIPVSCommand(), newBenchKubeCommand(), newBenchRulesCommand(), newBenchECMPCommand(), newBenchCNICommand(), newBenchSimCommand(),
		newBenchShowCommand(), newBenchServerCommand(), newBenchKubeFloorCommand(), newBenchSpeakersCommand(), newBenchCNIPeerCommand(), newBenchCNIForwardCommand())
	return cmd
}

// benchOutput is the destination of a benchmark's results.
type benchOutput struct{ dir, format string }

func (b *benchOutput) flags(cmd *cobra.Command) {
	b.dir, b.format = filepath.Join("out", "bench"), "table"
	cmd.Flags().StringVar(&b.dir, "out", b.dir, "`folder` for the figures")
	b.formatFlag(cmd)
}

func (b *benchOutput) formatFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&b.format, "output", "o", b.format, "what is printed: table or json")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))
}

func (b *benchOutput) validate() error {
	if b.format != "table" && b.format != "json" {
		return fmt.Errorf("--output: %q is not one of table, json", b.format)
	}
	return nil
}

// finish writes and prints a report, and returns an error if a goal was missed.
func (b *benchOutput) finish(cmd *cobra.Command, r *bench.Report) error {
	path, err := r.WriteJSON(b.dir)
	if err != nil {
		return err
	}
	if err := b.print(cmd, r); err != nil {
		return err
	}
	if b.format == "table" {
		fmt.Fprintln(cmd.OutOrStdout(), "written to", path)
	}
	return judged(r)
}

func (b *benchOutput) print(cmd *cobra.Command, r *bench.Report) error {
	if b.format == "json" {
		return cli.PrintJSON(cmd.OutOrStdout(), r)
	}
	if err := r.WriteTable(cmd.OutOrStdout()); err != nil {
		return err
	}
	for _, note := range r.Notes {
		fmt.Fprintln(cmd.OutOrStdout(), "-", note)
	}
	return nil
}

// judged returns an error if a goal was missed.
func judged(r *bench.Report) error {
	if missed := r.Missed(); len(missed) > 0 {
		return fmt.Errorf("%d goals were missed: %s", len(missed), strings.Join(missed, "; "))
	}
	return nil
}

func newBenchSurvivalCommand() *cobra.Command {
	o := survival.DefaultOptions()
	var out benchOutput
	var fairlead product
	cmd := &cobra.Command{
		Use:   "survival",
		Short: "Count the connections that break when balancers and servers change",
		Long: `Survival opens many TCP connections in the network of the paper, made of network
namespaces, through several balancers to several servers, and keeps data flowing on
all of them, while balancers come, go gracefully and are killed, servers come and
drain, and every manifest is written anew in another order: each for itself, all in
the same moment, and that several times within ten seconds. It counts what breaks,
with the reason, for each way to survive; and under fullnat when balancers go
gracefully. Goal: none with second-chance, and none under fullnat.

It needs root. Everything happens in namespaces that end with it.`,
		Example: `  fairlead-lab bench survival
  fairlead-lab bench survival --connections 1000 --connection-consistency second-chance,hash-only --fullnat=false
  fairlead-lab bench survival --events kill-balancer,storm -o json`,
		Args: cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) (err error) {
			o.Binary, err = fairlead.find()
			return errors.Join(err, o.Validate(), out.validate())
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return runBenchSurvival(cmd, o, &out) },
	}
	f := cmd.Flags()
	f.IntVar(&o.Connections, "connections", o.Connections, "TCP connections to keep open")
	f.IntVar(&o.Balancers, "balancers", o.Balancers, "balancers at the start")
	f.IntVar(&o.Servers, "servers", o.Servers, "servers at the start")
	f.StringSliceVar(&o.Survivals, "connection-consistency", o.Survivals, "ways to survive, one run each")
	f.StringVar(&o.Method, "method", o.Method, "forwarding method of these runs")
	f.StringVar(&o.Encapsulation, "encapsulation", o.Encapsulation, "of the tunnel: ipip or gue (default: the Service's)")
	f.StringVar(&o.Scheduler, "scheduler", o.Scheduler, "scheduler of these runs")
	f.BoolVar(&o.FullNAT, "fullnat", o.FullNAT, "remove balancers gracefully under fullnat, too")
	f.StringSliceVar(&o.Events, "events", o.Events, "what happens, in this order")
	f.IntVar(&o.Rounds, "rounds", o.Rounds, "how often everything changes within the ten seconds of the storm")
	f.DurationVar(&o.Every, "every", o.Every, "time between two requests of a connection")
	f.DurationVar(&o.Life, "life", o.Life, "how long a connection lasts, about, before another takes its place; 0 for ever")
	f.DurationVar(&o.Timeout, "timeout", o.Timeout, "how long an answer may take")
	f.DurationVar(&o.Settle, "settle", o.Settle, "how long the load runs on after each event")
	f.StringVar(&o.Logs, "logs", "", "`folder` to leave the logs of all processes in")
	fairlead.flag(cmd)
	out.flags(cmd)
	for flag, values := range map[string][]string{
		"method": cli.Texts(service.Methods), "scheduler": cli.Texts(service.Schedulers), "connection-consistency": cli.Texts(service.Survivals),
		"encapsulation": cli.Texts(service.Encapsulations), "events": survival.Events,
	} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

func runBenchSurvival(cmd *cobra.Command, o survival.Options, out *benchOutput) error {
	if err := enterBench(); err != nil {
		return err
	}
	o.Progress = cmd.ErrOrStderr()
	results, err := survival.Run(cmd.Context(), o)
	if len(results) == 0 {
		return err
	}
	plot, failed := survival.WritePlot(out.dir, o, results)
	if failed == nil {
		fmt.Fprintln(o.Progress, "plot in", plot)
	}
	return errors.Join(err, failed, out.finish(cmd, survival.Report(o, results)))
}

func newBenchDataplaneCommand() *cobra.Command {
	o := xdpbench.DataplaneOptions{Rounds: 31}
	var out benchOutput
	var against string
	cmd := &cobra.Command{
		Use:   "dataplane",
		Short: "Measure the programs packet by packet, beside goals and peers",
		Long: `Dataplane measures the balancer's program and that of the DSR agent by
BPF_PROG_TEST_RUN, every packet whole and of its own flow, for each method and for
how many flows and VIPs; and how long it takes to write that a server has changed.

Each case takes turns with a bare balancer, that does no more than it must, round by
round: goals and peers' figures are compared with the median of the rounds' ratios,
times what the bare one takes on the machine that they are of. So other work on this
machine, or a clock that wanders, does no harm to the figures, but spreads them.

With --against each case takes turns with the program of another build, on the same
maps, in place of the floors: an object file, a checkout, or a revision of the
repository in the working directory. The goal is to be at most 3 % slower.

It needs root. Everything happens in namespaces that end with it.`,
		Example: `  fairlead-lab bench dataplane
  fairlead-lab bench dataplane --only 'second chance' --rounds 101
  fairlead-lab bench dataplane --against v1.2.0
  fairlead-lab bench dataplane --against before.o --only 'flow table'`,
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return errors.Join(o.Validate(), out.validate()) },
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if against != "" {
				if o.Against, err = xdpbench.ReadBuild(cmd.Context(), against); err != nil {
					return err
				}
			}
			return runBenchPrograms(cmd, &out, func() (*bench.Report, error) {
				o.Progress = cmd.ErrOrStderr()
				return xdpbench.MeasureDataplane(cmd.Context(), o)
			})
		},
	}
	cmd.Flags().IntVar(&o.Rounds, "rounds", o.Rounds, "how often each figure is measured")
	cmd.Flags().StringVar(&o.Only, "only", "", "measure the cases with this `text` in their name")
	cmd.Flags().StringVar(&against, "against", "", "compare with this `build`: an object file, a checkout or a revision")
	out.flags(cmd)
	return cmd
}

// enterBench re-executes this program in its own sandbox.
func enterBench() error { return sandbox.Enter(sandbox.Options{Name: "bench", Net: true}) }

// runBenchPrograms measures in its own sandbox. If something fails, it still reports what
// was measured before.
func runBenchPrograms(cmd *cobra.Command, out *benchOutput, measure func() (*bench.Report, error)) error {
	if err := enterBench(); err != nil {
		return err
	}
	report, err := measure()
	if report == nil || len(report.Rows) == 0 {
		return err
	}
	return errors.Join(err, out.finish(cmd, report))
}

func newBenchLiveCommand() *cobra.Command {
	o := xdpbench.LiveOptions{Rounds: 9, Frames: 1 << 20}
	var out benchOutput
	cmd := &cobra.Command{
		Use:   "live",
		Short: "Measure the balancer on live frames over a veth",
		Long: `Live sends frames of many flows through the balancer's program on a veth and counts
what comes back, all on one processor, beside a program that only swaps the MAC
addresses. Goal: at most half of the time that Katran takes at 64 k flows, scaled by
that swap.

It needs root. Everything happens in namespaces that end with it.`,
		Example: `  fairlead-lab bench live
  fairlead-lab bench live --rounds 3 -o json`,
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return errors.Join(o.Validate(), out.validate()) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runBenchPrograms(cmd, &out, func() (*bench.Report, error) {
				o.Progress = cmd.ErrOrStderr()
				return xdpbench.MeasureLive(cmd.Context(), o)
			})
		},
	}
	cmd.Flags().IntVar(&o.Rounds, "rounds", o.Rounds, "how often each figure is measured")
	cmd.Flags().Uint32Var(&o.Frames, "frames", o.Frames, "frames sent for each figure")
	out.flags(cmd)
	return cmd
}

func newBenchShowCommand() *cobra.Command {
	out := benchOutput{format: "table"}
	cmd := &cobra.Command{
		Use:   "show FILE",
		Short: "Show figures that were measured before, beside their goals",
		Long: `Show prints the figures in a file that a benchmark has written, beside their goals
and the peers' figures. It ends with 1 where a goal was missed.`,
		Example: `  fairlead-lab bench show out/bench/survival.json`,
		Args:    cobra.ExactArgs(1),
		PreRunE: func(*cobra.Command, []string) error { return out.validate() },
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := bench.ReadJSON(args[0])
			if err != nil {
				return err
			}
			if err := out.print(cmd, r); err != nil {
				return err
			}
			return judged(r)
		},
	}
	out.formatFlag(cmd)
	return cmd
}

// newBenchServerCommand returns the command that the experiments run as a backend in its
// pod.
func newBenchServerCommand() *cobra.Command {
	var listen string
	var number uint64
	cmd := &cobra.Command{
		Use:     "server",
		Short:   "Answer the requests of bench survival",
		Hidden:  true,
		Example: `  fairlead-lab bench server --listen :80 --number 1`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ln, err := net.Listen("tcp", listen)
			if err != nil {
				return err
			}
			stop := context.AfterFunc(cmd.Context(), func() { ln.Close() })
			defer stop()
			return survival.Serve(ln, number)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", ":80", "`address` to listen on")
	cmd.Flags().Uint64Var(&number, "number", 1, "what the server calls itself")
	return cmd
}
