package main

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/internal/labcmd"
	"github.com/fairlead/fairlead/lab/bench/cni"
	"github.com/fairlead/fairlead/lab/bench/transfer"
	"github.com/fairlead/fairlead/lab/bench/tunnel"
)

func newBenchCNICommand() *cobra.Command {
	o := cni.DefaultOptions()
	var out benchOutput
	var fairlead labcmd.Product
	cmd := &cobra.Command{
		Use:   "cni",
		Short: "Measure pod networks between two sites: macvlan, host-device, bridge, overlays",
		Long: `Build two sites in network namespaces, Daejeon and Busan, with a link between them
that can be limited, and at each site a pod of every kind of network: the host's
own, macvlan, host-device, and flannel's host-gw, vxlan and udp behind a bridge.
The cases:

  throughput  one TCP connection, from pods to a server and to pods of the other site,
              at each of --rates, and at those of --plain without offloads; its spread,
              and the CPU time per Gbit
  wan         to a server at 1 Gbit/s with a delay between the sites, also for what
              Weave Net and Calico do with such packets
  latency     a short request and its reply, p50 and p99
  balancer    requests per second through Fairlead's balancer in a pod of each of
              flannel's networks, to --pods servers, with and without RPS; compared
              with iptables rules
  slices      a network with a guaranteed rate, under attack by another network
  bulk        eight bulk flows in a network with a guaranteed rate, under attack
  attachments 500 on one controller, which is killed meanwhile
  federation  from pod to pod of two domains with a controller each, enforced

All kinds alternate, --rounds times, and macvlan and host-device are compared with
the host round by round.

Requires root. Everything runs in namespaces that end with the command.`,
		Example: `  fairlead-lab bench cni
  fairlead-lab bench cni --case throughput --rates 1G --rounds 1 --seconds 1000
  fairlead-lab bench cni --case balancer --pods 1,2,4,8`,
		Args: cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) (err error) {
			o.Binary, err = fairlead.Find()
			return errors.Join(err, o.Validate(), out.format.Validate())
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return runBenchCNI(cmd, o, &out) },
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.Cases, "case", o.Cases, "cases to run")
	f.StringSliceVar(&o.Rates, "rates", o.Rates, "rate limits of the link between the sites: 1G, none")
	f.StringSliceVar(&o.Plain, "plain", o.Plain, "rates that are also measured without offloads")
	f.IntVar(&o.Rounds, "rounds", o.Rounds, "number of measurements per figure")
	f.Float64Var(&o.Seconds, "seconds", o.Seconds, "duration of each measurement, in seconds")
	f.IntSliceVar(&o.Pods, "pods", o.Pods, "numbers of servers behind a balancer")
	f.StringVar(&o.Plugin, "plugin", "", "fairlead-cni that attaches the pods on macvlan and host-device (default: the one next to this binary, if it exists)")
	f.StringVar(&o.Logs, "logs", "", "`folder` for the logs of all agents")
	fairlead.Flag(cmd)
	out.flags(cmd)
	_ = cmd.RegisterFlagCompletionFunc("case", cobra.FixedCompletions(cni.Cases(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func runBenchCNI(cmd *cobra.Command, o cni.Options, out *benchOutput) error {
	if err := enterBench(); err != nil {
		return err
	}
	if o.Plugin == "" {
		o.Plugin, _ = labcmd.Sibling("fairlead-cni") // the case without it reports that
	}
	o.Progress = cmd.ErrOrStderr()
	result, err := cni.Run(cmd.Context(), o)
	if len(result.Rows) == 0 {
		return err
	}
	return errors.Join(err, out.finish(cmd, result))
}

// newBenchCNIPeerCommand returns the command that bench cni runs at both ends of a
// measurement.
func newBenchCNIPeerCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "cni-peer",
		Short:   "Send and receive the traffic of bench cni, controlled by standard input",
		Hidden:  true,
		Example: `  fairlead-lab bench cni-peer`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return transfer.Serve(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}

// newBenchCNIForwardCommand returns the command that bench cni uses instead of flannel.
func newBenchCNIForwardCommand() *cobra.Command {
	var dev, local, peer string
	cmd := &cobra.Command{
		Use:     "cni-forward",
		Short:   "Tunnel packets of a tun device in UDP, like flannel's udp backend",
		Hidden:  true,
		Example: `  fairlead-lab bench cni-forward --dev flannel0 --local 10.1.0.2:8285 --peer 10.2.0.2:8285`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, err := netip.ParseAddrPort(local)
			if err != nil {
				return fmt.Errorf("--local: %w", err)
			}
			to, err := netip.ParseAddrPort(peer)
			if err != nil {
				return fmt.Errorf("--peer: %w", err)
			}
			return tunnel.Forward(dev, from, to, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&dev, "dev", "", "`name` of the device to create")
	cmd.Flags().StringVar(&local, "local", "", "`address:port` of this end")
	cmd.Flags().StringVar(&peer, "peer", "", "`address:port` of the other end")
	return cmd
}
