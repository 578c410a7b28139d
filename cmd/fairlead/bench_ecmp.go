package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/lab/bench/ecmp"
	"github.com/fairlead/fairlead/lab/sandbox"
)

func newBenchECMPCommand() *cobra.Command {
	o := ecmp.DefaultOptions()
	var out benchOutput
	cmd := &cobra.Command{
		Use:   "ecmp",
		Short: "Measure how soon the router's kernel has what balancers announce",
		Long: `Ecmp runs balancers' speakers, a reflector and a router in network namespaces and
measures until the kernel of the router is right. Its cases:

  table  a full table from nothing, a router that starts beside a full one, one
         prefix of many that gains or loses a balancer, a balancer that goes

It needs root. Everything happens in namespaces that end with it.`,
		Example: `  fairlead bench ecmp
  fairlead bench ecmp --case table --prefixes 100 --rounds 3`,
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return errors.Join(o.Validate(), out.validate()) },
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := sandbox.Enter(sandbox.Options{Name: "bench", Net: true}); err != nil {
				return err
			}
			if o.Binary, err = os.Executable(); err != nil {
				return err
			}
			o.Progress = cmd.ErrOrStderr()
			report, err := ecmp.Run(cmd.Context(), o)
			if len(report.Rows) == 0 {
				return err
			}
			return errors.Join(err, out.finish(cmd, report))
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.Cases, "case", o.Cases, "what is measured")
	f.IntVar(&o.Prefixes, "prefixes", o.Prefixes, "service prefixes that every balancer announces")
	f.IntVar(&o.Balancers, "balancers", o.Balancers, "balancers")
	f.IntVar(&o.Rounds, "rounds", o.Rounds, "how often each figure is measured")
	out.flags(cmd)
	_ = cmd.RegisterFlagCompletionFunc("case", cobra.FixedCompletions(ecmp.Cases(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// newBenchSpeakersCommand is what bench ecmp runs for all balancers.
func newBenchSpeakersCommand() *cobra.Command {
	var reflectors []string
	c := ecmp.Speakers{AS: config.DefaultAS}
	cmd := &cobra.Command{
		Use:     "speakers",
		Short:   "Announce as many balancers do, as standard input says",
		Hidden:  true,
		Example: `  fairlead bench speakers --reflector 10.0.0.109 --balancers 16`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, text := range reflectors {
				a, err := netip.ParseAddr(text)
				if err != nil {
					return fmt.Errorf("--reflector: %w", err)
				}
				c.Reflectors = append(c.Reflectors, a)
			}
			return ecmp.Speak(cmd.Context(), c, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringSliceVar(&reflectors, "reflector", nil, "`address`es to announce to")
	cmd.Flags().IntVar(&c.First, "first", 0, "number of the first balancer")
	cmd.Flags().IntVar(&c.Balancers, "balancers", 1, "how many")
	return cmd
}
