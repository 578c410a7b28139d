package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/explain"
	"github.com/fairlead/fairlead/agent/selection"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/api"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/query"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp"
	"github.com/fairlead/fairlead/internal/pktgen"
)

func newExplainFlowCommand() *cobra.Command {
	f := explainedFlow{packet: pktgen.Packet{Protocol: "tcp"}}
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
		PreRunE: func(_ *cobra.Command, args []string) error { return f.parse(args) },
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.BasicFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.packet.Protocol, "protocol", f.packet.Protocol, "tcp, udp or sctp")
	flags.StringSliceVar(&f.packet.Flags, "flags", nil, "TCP `FLAGS` of the packet such as SYN (default ACK)")
	flags.IntVar(&f.packet.Payload, "payload", 0, "`BYTES` of payload")
	flowProtocols := []string{"tcp", "udp", "sctp"}
	_ = cmd.RegisterFlagCompletionFunc("protocol", cobra.FixedCompletions(flowProtocols, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("flags", cobra.FixedCompletions(pktgen.TCPFlags, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

type explainedFlow struct {
	query.Query
	packet pktgen.Packet
	frame  []byte
	facts  explain.FlowFacts
}

// parse reads the arguments; errors are usage errors.
func (f *explainedFlow) parse(args []string) (err error) {
	for i, to := range []*netip.AddrPort{&f.facts.Client, &f.facts.VIP} {
		if *to, err = netip.ParseAddrPort(args[i]); err != nil {
			return fmt.Errorf("%q is not an address and port, as in 192.0.2.7:1234 or [2001:db8::7]:1234", args[i])
		}
	}
	if err := f.facts.Protocol.UnmarshalText([]byte(strings.ToUpper(f.packet.Protocol))); err != nil || f.facts.Protocol == service.AnyProtocol {
		return fmt.Errorf("--protocol: %q is not tcp, udp or sctp", f.packet.Protocol)
	}
	f.packet.From, f.packet.To = f.facts.Client, f.facts.VIP
	if f.frame, err = f.packet.Frame(); err != nil {
		return fmt.Errorf("--%w", err)
	}
	return nil
}

func (f *explainedFlow) run(cmd *cobra.Command) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), query.Timeout)
	defer cancel()
	s, err := f.FetchOnly(ctx, selection.Selection{Addresses: []netip.Addr{f.facts.VIP.Addr()}})
	if err != nil {
		return err
	}
	if s.DataPlane != nil && s.DataPlane.Kind == "xdp" {
		err = f.trace(ctx)
	} else {
		err = f.track(ctx, s)
	}
	if err != nil {
		return err
	}
	return f.Print(cmd.OutOrStdout(), explain.View([]explain.Chain{explain.Flow(s, f.facts)}))
}

// trace traces a packet of the flow.
func (f *explainedFlow) trace(ctx context.Context) error {
	ask, err := json.Marshal(xdp.TraceRequest{Frame: f.frame})
	if err != nil {
		return err
	}
	f.facts.Trace = &xdp.Trace{}
	return f.DoJSON(ctx, http.MethodPost, api.TracePath, bytes.NewReader(ask), f.facts.Trace)
}

// track looks for the flow where it is tracked.
func (f *explainedFlow) track(ctx context.Context, s status.Status) error {
	if s.DataPlane == nil && s.DSRAgent == nil {
		return errors.New("this agent forwards no flows: query a load balancer or a node with backends")
	}
	params := url.Values{"client": {f.facts.Client.String()}, "vip": {f.facts.VIP.String()}, "limit": {"1"}}
	body, err := f.Do(ctx, http.MethodGet, api.FlowsPath, params, nil)
	if err != nil {
		return err
	}
	defer body.Close()
	return query.Each(ctx, body, func(one api.Flow) error {
		if one.Protocol == f.facts.Protocol {
			f.facts.Tracked = append(f.facts.Tracked, one.Flow)
		}
		return nil
	})
}
