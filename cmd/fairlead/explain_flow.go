package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/explained"
	"github.com/fairlead/fairlead/internal/pktgen"
)

func newExplainFlowCommand() *cobra.Command {
	f := explained.Flow{Packet: pktgen.Packet{Protocol: "tcp"}}
	cmd := &cobra.Command{
		Use:     "flow CLIENT VIP",
		Aliases: []string{"flows"},
		Short:   "Explain what this node does with a flow",
		Long: `Explain a flow from CLIENT (ADDR:PORT) to VIP (ADDR:PORT): the frontend that matches,
the verdict of source ranges and rate limits, the slot and the backends that may have
the flow, its entry in the flow table, and how it is forwarded. Nothing is sent.

A load balancer with XDP traces a packet of the flow, by default one of an established
connection (fairlead trace); --flags SYN is one that opens a connection, and --payload
its size. Elsewhere, the answer is derived from the configuration and the flow table.`,
		Example: `  fairlead explain flow 192.0.2.7:1234 10.1.1.1:80
  fairlead explain flow 192.0.2.7:1234 10.1.1.1:80 --flags SYN
  fairlead explain flow 192.0.2.7:1234 10.1.1.1:53 --protocol udp --payload 1400`,
		Args:    cobra.ExactArgs(2),
		PreRunE: func(_ *cobra.Command, args []string) error { return f.Parse(args) },
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.Run(cmd.Context(), cmd.OutOrStdout()) },
	}
	f.BasicFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.Packet.Protocol, "protocol", f.Packet.Protocol, "tcp, udp or sctp")
	flags.StringSliceVar(&f.Packet.Flags, "flags", nil, "TCP `FLAGS` of the packet such as SYN (default ACK)")
	flags.IntVar(&f.Packet.Payload, "payload", 0, "`BYTES` of payload")
	flowProtocols := []string{"tcp", "udp", "sctp"}
	_ = cmd.RegisterFlagCompletionFunc("protocol", cobra.FixedCompletions(flowProtocols, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("flags", cobra.FixedCompletions(pktgen.TCPFlags, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}
