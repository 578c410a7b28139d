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
	"github.com/fairlead/fairlead/cmd/internal/labcmd"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/bench/survival"
	"github.com/fairlead/fairlead/lab/bench/xdpbench"
	"github.com/fairlead/fairlead/lab/budget"
	"github.com/fairlead/fairlead/lab/sandbox"
)

func newBenchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure Fairlead on this machine and compare with its goals",
		Long: `Run the experiments behind Fairlead's published figures. Each prints its table and
writes it to a file, and exits with 1 if a goal is missed.`,
		Example: `  fairlead-lab bench dataplane
  fairlead-lab bench peers --katran ../katran
  fairlead-lab bench live
  fairlead-lab bench survival
  fairlead-lab bench ipvs
  fairlead-lab bench kube
  fairlead-lab bench rules
  fairlead-lab bench ecmp
  fairlead-lab bench cni
  fairlead-lab bench web
  fairlead-lab bench sim`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBenchDataplaneCommand(), newBenchPeersCommand(), newBenchLiveCommand(), newBenchSurvivalCommand(), newBenchIPVSCommand(), newBenchKubeCommand(), newBenchRulesCommand(), newBenchECMPCommand(), newBenchCNICommand(), newBenchWebCommand(), newBenchSimCommand(),
		newBenchShowCommand(), newBenchServerCommand(), newBenchKubeFloorCommand(), newBenchSpeakersCommand(), newBenchCNIPeerCommand(), newBenchCNIForwardCommand(), newBenchWebGuestCommand())
	return cmd
}

// benchOutput is the destination of a benchmark's results.
type benchOutput struct {
	dir    string
	format labcmd.Format
}

func (b *benchOutput) flags(cmd *cobra.Command) {
	b.dir = filepath.Join("out", "bench")
	cmd.Flags().StringVar(&b.dir, "out", b.dir, "`folder` for the results")
	b.format.Flag(cmd)
}

// finish writes and prints a report, and returns an error if a goal was missed.
func (b *benchOutput) finish(cmd *cobra.Command, r *bench.Report) error {
	path, err := r.WriteJSON(b.dir)
	page, err2 := r.WritePage(b.dir)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	if err := b.print(cmd, r); err != nil {
		return err
	}
	if b.format == labcmd.Table {
		fmt.Fprintln(cmd.OutOrStdout(), "written to", path, "and", page)
	}
	return judged(r)
}

func (b *benchOutput) print(cmd *cobra.Command, r *bench.Report) error {
	if b.format == labcmd.JSON {
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
		return fmt.Errorf("%d goals missed: %s", len(missed), strings.Join(missed, "; "))
	}
	return nil
}

func newBenchSurvivalCommand() *cobra.Command {
	o := survival.DefaultOptions()
	var out benchOutput
	var fairlead labcmd.Product
	cmd := &cobra.Command{
		Use:   "survival",
		Short: "Count the connections that break when load balancers and backends change",
		Long: `Open many TCP connections through several load balancers to several backends, in
network namespaces, and send data on all of them. In the meantime, add, drain and
kill load balancers, add and drain backends, and rewrite the manifests in another
order: one event at a time, all at once, and several within ten seconds. Count the
connections that break, with the reason, for each connection consistency, and for
fullnat while load balancers drain. Goal: no broken connections with second-chance
and with fullnat.

Requires root. Everything runs in namespaces that end with the command.`,
		Example: `  fairlead-lab bench survival
  fairlead-lab bench survival --connections 1000 --connection-consistency second-chance,hash-only --fullnat=false
  fairlead-lab bench survival --events kill-balancer,storm -o json`,
		Args: cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) (err error) {
			o.Binary, err = fairlead.Find()
			return errors.Join(err, o.Validate(), out.format.Validate())
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return runBenchSurvival(cmd, o, &out) },
	}
	f := cmd.Flags()
	f.IntVar(&o.Connections, "connections", o.Connections, "TCP connections to keep open")
	f.IntVar(&o.Balancers, "balancers", o.Balancers, "balancers at the start")
	f.IntVar(&o.Servers, "servers", o.Servers, "servers at the start")
	f.StringSliceVar(&o.Survivals, "connection-consistency", o.Survivals, "connection consistencies, one run each")
	f.StringVar(&o.Method, "method", o.Method, "forwarding mode of these runs")
	f.StringVar(&o.Encapsulation, "encapsulation", o.Encapsulation, "encapsulation of the tunnel: ipip or gue (default: as in the Service)")
	f.StringVar(&o.Scheduler, "scheduler", o.Scheduler, "scheduler of these runs")
	f.BoolVar(&o.FullNAT, "fullnat", o.FullNAT, "also remove balancers gracefully with fullnat")
	f.StringSliceVar(&o.Events, "events", o.Events, "events, in this order")
	f.IntVar(&o.Rounds, "rounds", o.Rounds, "number of changes of everything within the ten seconds of the storm")
	f.DurationVar(&o.Every, "every", o.Every, "time between two requests of a connection")
	f.DurationVar(&o.Life, "life", o.Life, "approximate duration of a connection before another replaces it; 0 means unlimited")
	f.DurationVar(&o.Timeout, "timeout", o.Timeout, "maximum time for a reply")
	f.DurationVar(&o.Settle, "settle", o.Settle, "duration of the load after each event")
	f.StringVar(&o.Logs, "logs", "", "`folder` for the logs of all processes")
	fairlead.Flag(cmd)
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
	return errors.Join(err, out.finish(cmd, survival.Report(o, results)))
}

func newBenchDataplaneCommand() *cobra.Command {
	o := xdpbench.DataplaneOptions{Rounds: 31}
	var out benchOutput
	var against string
	cmd := &cobra.Command{
		Use:   "dataplane",
		Short: "Measure the BPF programs per packet, compared with goals",
		Long: `Measure the programs of the load balancer and of the DSR agent with
BPF_PROG_TEST_RUN, for each forwarding mode and different numbers of flows and VIPs.
Each packet is complete and belongs to a different flow. Also measure the time to
program a change of a backend.

Each case alternates with a minimal load balancer, round by round. The result is the
median of the ratios of all rounds, and goals are ratios, too. Other work on this
machine therefore increases the spread, but does not bias the result. To compare with
other load balancers, use "bench peers".

With --against, each case alternates with the program of another build instead, on
the same maps: an object file, a checkout, or a revision of the repository in the
working directory. The goal is to be at most 3 % slower.

Requires root. Everything runs in namespaces that end with the command.`,
		Example: `  fairlead-lab bench dataplane
  fairlead-lab bench dataplane --only 'second chance' --rounds 101
  fairlead-lab bench dataplane --against v1.2.0
  fairlead-lab bench dataplane --against before.o --only 'flow table'`,
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return errors.Join(o.Validate(), out.format.Validate()) },
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
	cmd.Flags().IntVar(&o.Rounds, "rounds", o.Rounds, "number of measurements per figure")
	cmd.Flags().StringVar(&o.Only, "only", "", "measure the cases with this `text` in their name")
	cmd.Flags().StringVar(&against, "against", "", "compare with this `build`: an object file, a checkout or a revision")
	out.flags(cmd)
	return cmd
}

// enterBench re-executes this program in its own sandbox.
func enterBench() error {
	return sandbox.Enter(sandbox.Options{Name: "bench", Net: true, Outside: budget.Serve})
}

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
		Short: "Measure the load balancer on live frames over a veth",
		Long: `Send frames of many flows through the load balancer's program on a veth, on one CPU,
and count the frames that return. Compare with a program that only swaps the MAC
addresses. Goal: at most half of the time of Katran with 64,000 flows, scaled by the
time of that program.

Requires root. Everything runs in namespaces that end with the command.`,
		Example: `  fairlead-lab bench live
  fairlead-lab bench live --rounds 3 -o json`,
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return errors.Join(o.Validate(), out.format.Validate()) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runBenchPrograms(cmd, &out, func() (*bench.Report, error) {
				o.Progress = cmd.ErrOrStderr()
				return xdpbench.MeasureLive(cmd.Context(), o)
			})
		},
	}
	cmd.Flags().IntVar(&o.Rounds, "rounds", o.Rounds, "number of measurements per figure")
	cmd.Flags().Uint32Var(&o.Frames, "frames", o.Frames, "frames sent for each figure")
	out.flags(cmd)
	return cmd
}

func newBenchShowCommand() *cobra.Command {
	var out benchOutput
	cmd := &cobra.Command{
		Use:   "show FILE",
		Short: "Show the results of an earlier benchmark with its goals",
		Long: `Print the results in a file that a benchmark has written, with their goals and the
peers' figures. Exit with 1 if a goal is missed.`,
		Example: `  fairlead-lab bench show out/bench/survival.json`,
		Args:    cobra.ExactArgs(1),
		PreRunE: func(*cobra.Command, []string) error { return out.format.Validate() },
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
	out.format.Flag(cmd)
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
	cmd.Flags().Uint64Var(&number, "number", 1, "number that the server reports")
	return cmd
}
