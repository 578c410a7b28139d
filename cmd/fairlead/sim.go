package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/sim/lvs"
	"github.com/fairlead/fairlead/sim/lvs/page"
)

func newSimCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Simulate virtual servers, as the LVS paper did",
		Long: `Sim runs the simulations of the paper "Implementation, Simulation of Linux Virtual
Server in ns-2" with Fairlead's own schedulers, packet by packet, and says of each of
its figures what holds, what does not, and what cannot be known.`,
		Example: `  fairlead sim list
  fairlead sim run fig8
  fairlead sim all`,
		Args:    cobra.NoArgs,
		GroupID: groupRun,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSimListCommand(), newSimRunCommand(), newSimAllCommand())
	return cmd
}

func newSimListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the figures that can be run",
		Example: `  fairlead sim list`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "FIGURE\tCLAIMS\tSHOWS")
			for _, f := range lvs.Figures() {
				fmt.Fprintf(w, "%s\t%d\t%s\n", f.Name, len(f.Claims), f.Title)
			}
			return w.Flush()
		},
	}
}

// simOptions are the flags of a run.
type simOptions struct {
	lvs.Options
	clock, dir, format string
}

func (o *simOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVar(&o.Seeds, "seeds", 1, "`number` of seeds; from 2 on with confidence intervals")
	f.StringVar(&o.clock, "clock", string(lvs.Compat), "compat (as ns-2, to the last digit) or scale (whole nanoseconds)")
	f.IntVar(&o.Workers, "workers", runtime.NumCPU(), "`number` of runs at once")
	f.StringVar(&o.dir, "out", filepath.Join("out", "sim"), "`folder` for the results")
	f.StringVarP(&o.format, "output", "o", "table", "what is printed: table or json")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("clock", cobra.FixedCompletions(texts(lvs.Clocks), cobra.ShellCompDirectiveNoFileComp))
}

func (o *simOptions) validate() error {
	o.Clock = lvs.Clock(o.clock)
	switch {
	case !slices.Contains(lvs.Clocks, o.Clock):
		return fmt.Errorf("--clock: %q is none of %s", o.clock, strings.Join(texts(lvs.Clocks), ", "))
	case o.Seeds < 1:
		return fmt.Errorf("--seeds: %d is less than 1", o.Seeds)
	case o.Workers < 1:
		return fmt.Errorf("--workers: %d is less than 1", o.Workers)
	case o.format != "table" && o.format != "json":
		return fmt.Errorf("--output: %q is none of table, json", o.format)
	}
	return nil
}

func newSimRunCommand() *cobra.Command {
	var o simOptions
	var figures []lvs.Figure
	cmd := &cobra.Command{
		Use:   "run FIGURE...",
		Short: "Run some of the paper's figures",
		Long: `Run simulates what figures of the paper show, prints what holds of what the paper
says, and writes tables, pictures and a page to a folder. Other seeds draw other
pauses after collisions: with several, figures are means with 95 % confidence
intervals. Ctrl-C keeps what was done.`,
		Example: `  fairlead sim run fig8
  fairlead sim run fig12 fig13 fig14 --seeds 5
  fairlead sim run fig27 --clock scale -o json`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(figureNames(), cobra.ShellCompDirectiveNoFileComp),
		PreRunE: func(_ *cobra.Command, args []string) (err error) {
			figures, err = figuresNamed(args)
			return errors.Join(err, o.validate())
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return runSim(cmd, figures, &o) },
	}
	o.flags(cmd)
	return cmd
}

func newSimAllCommand() *cobra.Command {
	var o simOptions
	cmd := &cobra.Command{
		Use:   "all",
		Short: "Run all of the paper's figures",
		Long: `All simulates every figure of the paper as run does, each network once for all
figures that show it.`,
		Example: `  fairlead sim all
  fairlead sim all --seeds 20 --out out/sim20`,
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return o.validate() },
		RunE:    func(cmd *cobra.Command, _ []string) error { return runSim(cmd, lvs.Figures(), &o) },
	}
	o.flags(cmd)
	return cmd
}

func figureNames() (names []string) {
	for _, f := range lvs.Figures() {
		names = append(names, f.Name)
	}
	return names
}

func figuresNamed(names []string) (figures []lvs.Figure, err error) {
	all := lvs.Figures()
	for _, name := range names {
		i := slices.IndexFunc(all, func(f lvs.Figure) bool { return f.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("%q is no figure that can be run: see fairlead sim list", name)
		}
		figures = append(figures, all[i])
	}
	return figures, nil
}

func runSim(cmd *cobra.Command, figures []lvs.Figure, o *simOptions) error {
	o.Progress = progress(cmd.ErrOrStderr())
	report, err := lvs.Run(cmd.Context(), figures, o.Options)
	if err != nil {
		return err
	}
	path, err := page.Write(o.dir, report)
	if err != nil {
		return err
	}
	if o.format == "json" {
		err = printJSON(cmd.OutOrStdout(), report)
	} else if err = page.WriteTable(cmd.OutOrStdout(), report); err == nil {
		fmt.Fprintln(cmd.OutOrStdout(), "written to", path)
	}
	if err == nil && report.Interrupted {
		err = fmt.Errorf("interrupted: %s has what was done", o.dir)
	}
	return err
}

// progress tells a terminal how far runs are; nobody else wants to know.
func progress(out io.Writer) func(done, total int) {
	if !isTerminal(out) {
		return nil
	}
	const width = 40
	return func(done, total int) {
		bar := strings.Repeat("=", width*done/total)
		fmt.Fprintf(out, "\r[%-*s] %d of %d runs", width, bar, done, total)
		if done == total {
			fmt.Fprintln(out)
		}
	}
}
