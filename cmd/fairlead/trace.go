package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/api"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/pcap"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/query"
	"github.com/fairlead/fairlead/dataplane/xdp"
	"github.com/fairlead/fairlead/internal/pktdump"
	"github.com/fairlead/fairlead/internal/pktgen"
)

func newTraceCommand() *cobra.Command {
	t := tracer{packet: pktgen.Packet{Protocol: "tcp"}, number: 1}
	cmd := &cobra.Command{
		Use:   "trace",
		Short: "Trace what the load balancer would do with a packet",
		Long: `Show each decision that the load balancer would make for a packet: frontend,
backend, next hop, verdict and reason. Describe the packet by flags or read it
from a capture file. The output also decodes the outgoing packet and lists the
state that the packet would change, such as flows and rate limits.

Trace sends nothing and changes nothing: it runs a separate program, compiled from
the same source, on copies of the load balancer's state. A trace takes about
0.15 s of one CPU.`,
		Example: `  fairlead trace --from 192.0.2.7:1234 --to 10.1.1.1:80 --flags SYN
  fairlead trace --from 192.0.2.7:1234 --to 10.1.1.1:53 --protocol udp --payload 512
  fairlead trace --from [2001:db8::7]:1234 --to [2001:db8:1::1]:80 --ttl 1 -o json
  fairlead trace --from 192.0.2.7:1 --to 10.1.1.1:80 --protocol icmp --icmp too-big --about 198.51.100.9:4321
  fairlead trace --pcap odd.pcapng --packet 3 --write out.pcap`,
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return t.prepare() },
		RunE:    func(cmd *cobra.Command, _ []string) error { return t.run(cmd) },
	}
	t.BasicFlags(cmd)
	cmd.GroupID = groupQuery
	t.flags(cmd)
	return cmd
}

type tracer struct {
	query.Query
	packet          pktgen.Packet
	from, to, about string
	fragment        string
	iface           string
	pcap            string
	number          int
	write           string

	frame []byte
}

func (t *tracer) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&t.from, "from", "", "`ADDR:PORT` of the client")
	f.StringVar(&t.to, "to", "", "`ADDR:PORT` of the destination")
	f.StringVar(&t.packet.Protocol, "protocol", t.packet.Protocol, "tcp, udp, sctp or icmp")
	f.StringSliceVar(&t.packet.Flags, "flags", nil, "TCP `FLAGS` such as SYN,ACK (default ACK); INIT for SCTP")
	f.IntVar(&t.packet.Payload, "payload", 0, "`BYTES` of payload")
	f.IntVar(&t.packet.TTL, "ttl", 0, "TTL or hop limit (default 64)")
	f.IntVar(&t.packet.VLAN, "vlan", 0, "802.1Q VLAN `ID`")
	f.StringVar(&t.fragment, "fragment", "", "fragment at this `OFFSET` in bytes; a trailing + (0+) if more follow")
	f.StringVar(&t.packet.ICMP, "icmp", "", "`KIND`: echo, unreachable, too-big or time-exceeded, with --protocol icmp")
	f.StringVar(&t.about, "about", "", "`ADDR:PORT` of the client whose packet an ICMP error quotes (default: --from)")
	f.StringVar(&t.iface, "interface", "", "interface `NAME` that receives it (default: the first)")
	f.StringVar(&t.pcap, "pcap", "", "`FILE` (pcap or pcapng) to read the packet from")
	f.IntVar(&t.number, "packet", t.number, "`NUMBER` of the packet in --pcap, from 1")
	f.StringVar(&t.write, "write", "", "`FILE` to write the outgoing packet to (pcap)")
	for flag, values := range map[string][]string{
		"protocol": pktgen.Protocols, "flags": pktgen.TCPFlags, "icmp": pktgen.ICMPKinds,
	} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	cmd.MarkFlagsMutuallyExclusive("pcap", "from")
	cmd.MarkFlagsMutuallyExclusive("pcap", "to")
	cmd.MarkFlagsOneRequired("pcap", "from")
	cmd.MarkFlagsRequiredTogether("from", "to")
}

// prepare builds the frame; errors are usage errors.
func (t *tracer) prepare() (err error) {
	if t.pcap != "" {
		t.frame, err = pcap.Frame(t.pcap, t.number)
		return err
	}
	for flag, f := range map[string]struct {
		text string
		to   *netip.AddrPort
	}{"from": {t.from, &t.packet.From}, "to": {t.to, &t.packet.To}, "about": {t.about, &t.packet.About}} {
		if f.text == "" {
			continue
		}
		if *f.to, err = api.ParseEnd(f.text); err != nil {
			return fmt.Errorf("--%s: %w", flag, err)
		}
	}
	if err := t.parseFragment(); err != nil {
		return fmt.Errorf("--fragment: %w", err)
	}
	if t.packet.Protocol == "sctp" {
		t.packet.Opens = slices.ContainsFunc(t.packet.Flags, func(f string) bool { return strings.EqualFold(f, "INIT") })
		t.packet.Flags = nil
	}
	if t.frame, err = t.packet.Frame(); err != nil {
		return fmt.Errorf("--%w", err)
	}
	return nil
}

func (t *tracer) parseFragment() (err error) {
	if t.fragment == "" {
		return nil
	}
	text, more := strings.CutSuffix(t.fragment, "+")
	t.packet.Fragment, t.packet.More = true, more
	if t.packet.Offset, err = strconv.Atoi(text); err != nil {
		return fmt.Errorf("%q is not an offset in bytes, as in 0+ or 1480", t.fragment)
	}
	return nil
}

func (t *tracer) run(cmd *cobra.Command) error {
	ask, err := json.Marshal(xdp.TraceRequest{Interface: t.iface, Frame: t.frame})
	if err != nil {
		return err
	}
	var got xdp.Trace
	if err := t.DoJSON(cmd.Context(), http.MethodPost, api.TracePath, nil, bytes.NewReader(ask), &got); err != nil {
		return err
	}
	if t.write != "" {
		if err := pcap.Write(t.write, got.Out); err != nil {
			return fmt.Errorf("--write: %w", err)
		}
	}
	return t.Print(cmd.OutOrStdout(), traceSheet(got))
}

// traceSheet shows a trace: the packet as received, the decision, and the packet as sent.
func traceSheet(t xdp.Trace) status.Sheet {
	var lines []string
	put := func(label string, texts ...string) {
		for i, text := range texts {
			if i > 0 {
				label = ""
			}
			lines = append(lines, strings.TrimRight(fmt.Sprintf("%-10s%s", label, text), " "))
		}
	}
	in := pktdump.Lines(t.In)
	put("in", fmt.Sprintf("%s, %d bytes", t.Interface, len(t.In)))
	put("", in...)
	for i, s := range t.Steps {
		if i == 0 {
			put("why", s.Text)
		} else {
			put("", s.Text)
		}
	}
	put("verdict", verdictWords(t))
	out := []string{}
	if t.Verdict != "XDP_DROP" && !bytes.Equal(t.In, t.Out) {
		out = pktdump.Lines(t.Out)
		put("out", fmt.Sprintf("%d bytes", len(t.Out)))
		put("", out...)
	}
	put("would", t.Would...)
	put("attached", t.Attached)
	return status.Sheet{Lines: lines, Value: struct {
		xdp.Trace
		InWords  []string `json:"inWords"`
		OutWords []string `json:"outWords"`
	}{t, in, out}}
}

// verdictWords explains a verdict.
func verdictWords(t xdp.Trace) string {
	words := t.Verdict + meaning(t)
	if t.Drop != "" && t.Verdict != "XDP_DROP" {
		words += ", an answer in place of the packet, which is dropped: " + t.Drop
	}
	return words
}

func meaning(t xdp.Trace) string {
	switch t.Verdict {
	case "XDP_PASS":
		if bytes.Equal(t.In, t.Out) {
			return ": left to the kernel as it is"
		}
		return ": left to the kernel, changed"
	case "XDP_DROP":
		if t.Drop == "" {
			return ": taken over by the agent"
		}
		return ": dropped, " + t.Drop
	case "XDP_TX":
		return ": sent back out of " + t.Interface
	case "XDP_REDIRECT":
		return ": sent out"
	}
	return ""
}
