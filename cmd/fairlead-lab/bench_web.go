package main

import (
	"errors"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/internal/labcmd"
	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/bench/cni"
)

func newBenchWebCommand() *cobra.Command {
	o := cni.DefaultWebOptions()
	var out benchOutput
	var fairlead labcmd.Product
	cmd := &cobra.Command{
		Use:   "web",
		Short: "Measure HTTP requests to web pods through load balancers with a CPU budget",
		Long: `Run nginx in pods, and send them requests on many connections of wrk through load
balancers. Pods and load balancers have budgets of CPU time, so that the requests grow
with the number of pods until the load balancer is saturated. The cases:

  balancers  Fairlead, iptables and nginx, in flannel's networks, with one and two queues
  guest      IPVS and iptables in user-mode Linux
  scale      one to four guests with IPVS behind a router

Requires root, nginx and wrk (scripts/deps.sh web). Everything runs in namespaces that end
with the command.`,
		Example: `  fairlead-lab bench web
  fairlead-lab bench web --case scale --rounds 5
  fairlead-lab bench web --case balancers --pods 1,10,20 --seconds 30`,
		Args: cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) (err error) {
			o.Binary, err = fairlead.Find()
			return errors.Join(err, o.Validate(), out.format.Validate())
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runBenchPrograms(cmd, &out, func() (*bench.Report, error) {
				o.Progress = cmd.ErrOrStderr()
				return cni.Web(cmd.Context(), o)
			})
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.Cases, "case", o.Cases, "cases to run")
	f.IntSliceVar(&o.Pods, "pods", o.Pods, "numbers of web pods, in ascending order")
	f.IntVar(&o.Rounds, "rounds", o.Rounds, "number of measurements per figure")
	f.Float64Var(&o.Seconds, "seconds", o.Seconds, "duration of each measurement, in seconds")
	f.IntVar(&o.Connections, "connections", o.Connections, "number of connections")
	f.StringVar(&o.Logs, "logs", "", "`folder` for the logs of all agents")
	fairlead.Flag(cmd)
	out.flags(cmd)
	_ = cmd.RegisterFlagCompletionFunc("case", cobra.FixedCompletions(cni.WebCases(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// newBenchWebGuestCommand returns the command that bench web runs in user-mode Linux.
func newBenchWebGuestCommand() *cobra.Command {
	var o cni.GuestOptions
	cmd := &cobra.Command{
		Use:     "web-guest",
		Short:   "Forward the requests of bench web by IPVS and by iptables",
		Hidden:  true,
		Example: `  fairlead-lab bench web-guest --address 10.1.16.20/24 --gateway 10.1.16.1 --ipvs 10.1.31.1 --iptables 10.1.31.2 --servers 10.2.16.100 --pods 1`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cni.WebGuest(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.TextVar(&o.Address, "address", o.Address, "`address` of the guest, with its network")
	f.TextVar(&o.Gateway, "gateway", o.Gateway, "`address` of the default route")
	f.TextVar(&o.IPVS, "ipvs", o.IPVS, "`address` of the services of IPVS")
	f.TextVar(&o.Tables, "iptables", o.Tables, "`address` of the services of iptables")
	f.Func("servers", "`addresses` of the web pods", func(text string) error {
		for part := range strings.SplitSeq(text, ",") {
			addr, err := netip.ParseAddr(part)
			if err != nil {
				return err
			}
			o.Servers = append(o.Servers, addr)
		}
		return nil
	})
	f.IntVar(&o.Port, "port", 80, "port of the web pods")
	f.IntSliceVar(&o.Pods, "pods", nil, "numbers of web pods")
	return cmd
}
