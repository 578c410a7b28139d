package main

import (
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/internal/cli"
	"github.com/fairlead/fairlead/lab/sim/experiments"
	"github.com/fairlead/fairlead/lab/sim/lvs"
	"github.com/fairlead/fairlead/lab/sim/report"
)

func newSimCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Simulate virtual servers, as the LVS paper did",
		Long: `Run the simulations of the paper "Implementation, Simulation of Linux Virtual Server
in ns-2" with Fairlead's own schedulers, packet by packet. Report for each of its
figures which claims hold, which do not, and which cannot be checked. Further
experiments answer questions beyond the paper.`,
		Example: `  fairlead-lab sim list
  fairlead-lab sim run fig8
  fairlead-lab sim all`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSimListCommand(), newSimRunCommand(), newSimAllCommand(), newSimWhatIfCommand(), newSimCalibrateCommand())
	return cmd
}

func newSimListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the figures and experiments that can be run",
		Example: `  fairlead-lab sim list`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "FIGURE\tCLAIMS\tSHOWS")
			for _, f := range lvs.Figures() {
				fmt.Fprintf(w, "%s\t%d\t%s\n", f.Name, len(f.Claims), f.Title)
			}
			fmt.Fprintln(w, "\nEXPERIMENT\tCLAIMS\tQUESTION")
			for _, e := range allExperiments() {
				fmt.Fprintf(w, "%s\t%d\t%s\n", e.Name, len(e.Claims), e.Question)
			}
			return w.Flush()
		},
	}
}

var simFormats = []string{"table", "json", "markdown"}

// simOptions are the flags of a run.
type simOptions struct {
	lvs.Options
	clock, dir, format string
	small              bool
	set                map[string]string
	params             map[string]float64
}

func (o *simOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVar(&o.Seeds, "seeds", 1, "`number` of seeds; 2 or more give confidence intervals")
	f.StringVar(&o.clock, "clock", string(lvs.Compat), "compat (as ns-2, to the last digit) or scale (whole nanoseconds)")
	f.IntVar(&o.Workers, "workers", runtime.NumCPU(), "`number` of concurrent runs")
	f.StringVar(&o.dir, "out", filepath.Join("out", "sim"), "`folder` for the results")
	f.StringVarP(&o.format, "output", "o", "table", "output format: table, json or markdown (the verdicts, for a page)")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(simFormats, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("clock", cobra.FixedCompletions(cli.Texts(lvs.Clocks), cobra.ShellCompDirectiveNoFileComp))
}

func (o *simOptions) validate() error {
	o.Clock = lvs.Clock(o.clock)
	switch {
	case !slices.Contains(lvs.Clocks, o.Clock):
		return fmt.Errorf("--clock: %q is not one of %s", o.clock, strings.Join(cli.Texts(lvs.Clocks), ", "))
	case o.Seeds < 1:
		return fmt.Errorf("--seeds: %d is less than 1", o.Seeds)
	case o.Workers < 1:
		return fmt.Errorf("--workers: %d is less than 1", o.Workers)
	case !slices.Contains(simFormats, o.format):
		return fmt.Errorf("--output: %q is not one of %s", o.format, strings.Join(simFormats, ", "))
	}
	return nil
}

func newSimRunCommand() *cobra.Command {
	var o simOptions
	var some simulated
	cmd := &cobra.Command{
		Use:   "run NAME|FILE.yaml...",
		Short: "Run figures of the paper, further experiments, and your own scenarios",
		Long: `Simulate figures of the paper, further experiments, or your own scenarios from
files. Print which claims hold, and write tables, pictures and a page to a folder.
Other seeds make other random choices: with several, results are means with 95 %
confidence intervals. Ctrl-C keeps the results so far.

--small runs the variants of experiments that take seconds. --set changes their
parameters, which the page lists.`,
		Example: `  fairlead-lab sim run fig8
  fairlead-lab sim run fig12 fig13 fig14 --seeds 5
  fairlead-lab sim run fig27 --clock scale -o json
  fairlead-lab sim run docs/scenarios/losing-one.yaml`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(everything().names(), cobra.ShellCompDirectiveDefault),
		PreRunE: func(_ *cobra.Command, args []string) (err error) {
			if some, err = everything().named(args); err == nil {
				err = o.validateFor(some)
			}
			return err
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			some.settle(cmd, &o)
			return runSim(cmd, some, &o)
		},
	}
	o.flags(cmd)
	cmd.Flags().BoolVar(&o.small, "small", false, "run the variants of experiments that only take seconds")
	cmd.Flags().StringToStringVar(&o.set, "set", nil, "parameters of experiments that override defaults (`NAME=NUMBER`,...)")
	return cmd
}

// validateFor also validates the parameters of the selected experiments.
func (o *simOptions) validateFor(some simulated) (err error) {
	if err := o.validate(); err != nil {
		return err
	}
	if o.params, err = numbersOf(o.set); err != nil {
		return err
	}
	b := experiments.Options{Set: o.params}
	if err := b.Check(some.experiments); err != nil {
		return fmt.Errorf("--set: %w", err)
	}
	return nil
}

func newSimAllCommand() *cobra.Command {
	var o simOptions
	cmd := &cobra.Command{
		Use:   "all",
		Short: "Run all of the paper's figures",
		Long: `Simulate every figure of the paper, as run does. A network that several figures show
is simulated once.`,
		Example: `  fairlead-lab sim all
  fairlead-lab sim all --seeds 20 --out out/sim20`,
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return o.validate() },
		RunE:    func(cmd *cobra.Command, _ []string) error { return runSim(cmd, simulated{figures: lvs.Figures()}, &o) },
	}
	o.flags(cmd)
	return cmd
}

func runSim(cmd *cobra.Command, some simulated, o *simOptions) error {
	result, err := some.run(cmd.Context(), o, progress(cmd.ErrOrStderr()))
	if err != nil {
		return err
	}
	path, err := report.Write(o.dir, result)
	if err != nil {
		return err
	}
	switch o.format {
	case "json":
		err = cli.PrintJSON(cmd.OutOrStdout(), result)
	case "markdown":
		err = report.WriteMarkdown(cmd.OutOrStdout(), result)
	default:
		if err = report.WriteTable(cmd.OutOrStdout(), result); err == nil {
			fmt.Fprintln(cmd.OutOrStdout(), "written to", path)
		}
	}
	if err == nil && result.Interrupted {
		err = fmt.Errorf("interrupted: partial results are in %s", o.dir)
	}
	return err
}

// progress returns a function that shows the progress of runs on a terminal, or nil.
func progress(out io.Writer) func(what string, part float64) {
	if !cli.IsTerminal(out) {
		return nil
	}
	const width = 40
	return func(what string, part float64) {
		bar := strings.Repeat("=", int(width*part))
		fmt.Fprintf(out, "\r[%-*s] %3.0f %% of %s", width, bar, 100*part, what)
		if part >= 1 {
			fmt.Fprintln(out)
		}
	}
}
