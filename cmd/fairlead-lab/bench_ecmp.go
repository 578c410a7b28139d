package main

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/cmd/internal/labcmd"
	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/bench/ecmp"
	"github.com/fairlead/fairlead/lab/cluster"
)

const benchECMPText = `Run load balancers, reflectors and a router in network namespaces. Measure the delay
until the router's kernel has the correct routes, and the effect on traffic. The
cases:

  convergence  a new number of balancers every few seconds: the delay until the
               router's kernel has exactly these, for each router implementation
  failures     a balancer's process is killed; its link is cut silently and restored
  holdtime     a balancer's link is cut silently, without BFD
  neighbors    balancers at random addresses of the reflector's range
  throughput   through 1 to --most balancers, with links of equal rates, also while
               their number changes, and without limits
  bfd          sessions that end without a failure while every CPU is busy
  nexthops     flows that move when one of four next hops is removed, with and
               without resilient next-hop groups
  reflectors   one of two reflectors is killed: changes of the route, and losses
  restarts     packets lost when router, reflector or agents restart
  services     an agent that starts with --prefixes Services, and one manifest that is
               removed or added: the delay until the router has the routes
  table        a full table from nothing, a router that starts next to a full one, one
               prefix of many that gains or loses a balancer, a balancer that is removed
  zebra        next hops in the kernel of a router with GoBGP and FRR's zebra

Results of convergence and bfd are written every 20 s, and on interrupt.

Requires root, and FRR and BIRD if --router names them. Everything runs in
namespaces that end with the command.`

func newBenchECMPCommand() *cobra.Command {
	o := ecmp.DefaultOptions()
	var out benchOutput
	var fairlead labcmd.Product
	cmd := &cobra.Command{
		Use:   "ecmp",
		Short: "Measure the routes between load balancers and router: delays, flows, losses, throughput",
		Long:  benchECMPText,
		Example: `  fairlead-lab bench ecmp
  fairlead-lab bench ecmp --case convergence --router fairlead --duration 20h
  fairlead-lab bench ecmp --case table --prefixes 100 --rounds 3
  fairlead-lab bench ecmp --case services --prefixes 5000`,
		Args: cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) (err error) {
			o.Binary, err = fairlead.Find()
			return errors.Join(err, o.Validate(), out.format.Validate())
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return runBenchECMP(cmd, o, &out) },
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.Cases, "case", o.Cases, "cases to run")
	f.StringSliceVar(&o.Routers, "router", o.Routers, "upstream routers: convergence, failures and reflectors run with each")
	f.DurationVar(&o.Duration, "duration", 0, "duration of convergence (per router), of changes in throughput, and of bfd (default: 3m, throughput 2m, bfd 10m)")
	f.DurationVar(&o.Every, "every", o.Every, "time between two changes of the number of balancers")
	f.IntVar(&o.Most, "most", o.Most, "maximum number of balancers")
	f.Uint64Var(&o.Seed, "seed", o.Seed, "seed for the random numbers of balancers")
	f.Uint64Var(&o.Rate, "rate", o.Rate, "rate limit of each balancer's link, in Mbit/s")
	f.IntVar(&o.Flows, "flows", o.Flows, "flows whose next hops and losses are counted")
	f.IntVar(&o.Prefixes, "prefixes", o.Prefixes, "table: service prefixes that every balancer advertises; services: Services in the folder")
	f.IntVar(&o.Balancers, "balancers", o.Balancers, "table: number of balancers")
	f.IntVar(&o.Rounds, "rounds", o.Rounds, "number of measurements per figure")
	f.StringVar(&o.Logs, "logs", "", "`folder` for the logs of all processes")
	fairlead.Flag(cmd)
	out.flags(cmd)
	for flag, values := range map[string][]string{"case": ecmp.Cases(), "router": cluster.Routers} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

func runBenchECMP(cmd *cobra.Command, o ecmp.Options, out *benchOutput) error {
	if err := enterBench(); err != nil {
		return err
	}
	o.Progress = cmd.ErrOrStderr()
	o.Save = func(r *bench.Report) error {
		_, err := r.WriteJSON(out.dir)
		return err
	}
	result, err := ecmp.Run(cmd.Context(), o)
	if len(result.Rows) == 0 {
		return err
	}
	return errors.Join(err, out.finish(cmd, result))
}

// newBenchSpeakersCommand returns the command that bench ecmp runs for all load
// balancers.
func newBenchSpeakersCommand() *cobra.Command {
	var reflectors []string
	c := ecmp.Speakers{AS: config.DefaultAS}
	cmd := &cobra.Command{
		Use:     "speakers",
		Short:   "Advertise routes like many balancers, controlled by standard input",
		Hidden:  true,
		Example: `  fairlead-lab bench speakers --reflector 10.0.0.109 --balancers 16`,
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
	cmd.Flags().StringSliceVar(&reflectors, "reflector", nil, "`address`es of the reflectors")
	cmd.Flags().IntVar(&c.First, "first", 0, "number of the first balancer")
	cmd.Flags().IntVar(&c.Balancers, "balancers", 1, "number of balancers")
	return cmd
}
