package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/internal/cli"
	"github.com/fairlead/fairlead/cmd/internal/labcmd"
	"github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/lab/papers"
)

func newPapersCommand() *cobra.Command {
	o := papers.Options{Length: papers.Short, Dir: filepath.Join("out", "papers")}
	var fairlead labcmd.Product
	var format labcmd.Format
	only, length := []string{}, string(o.Length)
	cmd := &cobra.Command{
		Use:   "papers",
		Short: "Reproduce the figures and tables of the papers behind Fairlead",
		Long: `Run the experiments behind every figure and table of the five papers from which
Fairlead grew, repeat them, test each claim, and write a page with the paper's values
next to those of this machine. A row holds, does not hold, is unstable (repetitions
differ), or cannot be known here; what has no experiment yet is listed as missing.

Results of each repetition are kept in the folder: after an interruption, the same
command continues. --fresh measures again.

Requires root, except for paper 001. Everything runs in namespaces that end with the
command.`,
		Example: `  fairlead-lab papers
  fairlead-lab papers --only 001/fig8 --repetitions 1
  fairlead-lab papers --only 000/fig13,004 -o json
  fairlead-lab papers --length paper`,
		Args: cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error {
			o.Only, o.Length = only, papers.Length(length)
			return errors.Join(o.Validate(), format.Validate())
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return runPapers(cmd, o, &fairlead, format) },
	}
	f := cmd.Flags()
	f.StringSliceVar(&only, "only", nil, "`rows` to measure: a paper, or an item such as 000/fig10a")
	f.StringVar(&length, "length", length, "duration of the experiments: short, or as in the paper")
	f.IntVar(&o.Repetitions, "repetitions", o.Repetitions, "how often each experiment runs (0: twice, but once if it is short and takes more than two minutes)")
	f.BoolVar(&o.Fresh, "fresh", false, "measure again what is in the folder")
	f.StringVar(&o.Dir, "out", o.Dir, "`folder` for the report and the results")
	fairlead.Flag(cmd)
	format.Flag(cmd)
	for flag, values := range map[string][]string{"length": cli.Texts(papers.Lengths), "only": papers.IDs()} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

func runPapers(cmd *cobra.Command, o papers.Options, fairlead *labcmd.Product, format labcmd.Format) (err error) {
	if o.NeedsRoot() {
		if o.Binary, err = fairlead.Find(); err != nil {
			return err
		}
		o.Plugin, _ = labcmd.Sibling("fairlead-cni") // pods are attached by netlink only without it
		if programs := o.Programs(); programs != nil {
			if err := kube.Prepare(programs...); err != nil { // the other experiments need none
				fmt.Fprintln(cmd.ErrOrStderr(), err)
			}
		}
		if err := enterBench(); err != nil {
			return err
		}
	}
	o.Progress = cmd.ErrOrStderr()
	report, failed := papers.Run(cmd.Context(), o)
	path, err := report.Write(o.Dir)
	written := err == nil
	if err = errors.Join(failed, err); format == labcmd.JSON {
		return errors.Join(err, cli.PrintJSON(cmd.OutOrStdout(), report))
	}
	err = errors.Join(err, report.WriteTable(cmd.OutOrStdout(), o.Only))
	if written {
		fmt.Fprintln(cmd.OutOrStdout(), "written to", path)
	}
	return err
}
