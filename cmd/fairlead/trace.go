package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/status"
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
	t.basicFlags(cmd)
	cmd.GroupID = groupQuery
	t.flags(cmd)
	return cmd
}

type tracer struct {
	apiClient
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
		t.frame, err = frameOf(t.pcap, t.number)
		return err
	}
	for flag, f := range map[string]struct {
		text string
		to   *netip.AddrPort
	}{"from": {t.from, &t.packet.From}, "to": {t.to, &t.packet.To}, "about": {t.about, &t.packet.About}} {
		if f.text == "" {
			continue
		}
		if *f.to, err = parseEnd(f.text); err != nil {
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

// parseEnd parses an address with an optional port.
func parseEnd(text string) (netip.AddrPort, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.AddrPortFrom(a, 0), nil
	}
	end, err := netip.ParseAddrPort(text)
	if err != nil {
		return end, fmt.Errorf("%q is not an address and port, as in 192.0.2.7:1234 or [2001:db8::7]:1234", text)
	}
	return end, nil
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

// maxFrame is the longest frame that tcpdump captures, in bytes.
const maxFrame = 1 << 18

// frameOf extracts one frame from a capture.
func frameOf(path string, number int) ([]byte, error) {
	if number < 1 {
		return nil, fmt.Errorf("--packet: %d: they are counted from 1", number)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--pcap: %w", err)
	}
	defer file.Close()
	src, link, err := openPcap(file)
	if err != nil {
		return nil, fmt.Errorf("--pcap: %s: %w", path, err)
	}
	if link != layers.LinkTypeEthernet {
		return nil, fmt.Errorf("--pcap: %s holds %s: capture Ethernet", path, link)
	}
	for n := 1; ; n++ {
		frame, _, err := src.ReadPacketData()
		if err == nil && len(frame) > maxFrame {
			err = fmt.Errorf("packet %d has %d bytes; no more than %d are read", n, len(frame), maxFrame)
		}
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("--packet: %s has only %d", path, n-1)
		}
		if err != nil {
			return nil, fmt.Errorf("--pcap: %s: %w", path, err)
		}
		if n == number {
			return frame, nil
		}
	}
}

// openPcap opens either format, recognized by its first bytes.
func openPcap(file io.ReadSeeker) (gopacket.PacketDataSource, layers.LinkType, error) {
	var magic [4]byte
	if _, err := io.ReadFull(file, magic[:]); err != nil {
		return nil, 0, fmt.Errorf("no capture: %w", err)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, 0, err
	}
	const section = 0x0a0d0d0a // type of pcapng's first block, the same in either byte order
	if binary.BigEndian.Uint32(magic[:]) == section {
		r, err := pcapgo.NewNgReader(file, pcapgo.DefaultNgReaderOptions)
		if err != nil {
			return nil, 0, err
		}
		return r, r.LinkType(), nil
	}
	r, err := pcapgo.NewReader(file)
	if err != nil {
		return nil, 0, err
	}
	r.SetSnaplen(maxFrame) // the file's own limit may be higher
	return r, r.LinkType(), nil
}

func (t *tracer) run(cmd *cobra.Command) error {
	ask, err := json.Marshal(xdp.TraceRequest{Interface: t.iface, Frame: t.frame})
	if err != nil {
		return err
	}
	var got xdp.Trace
	if err := t.doJSON(cmd.Context(), http.MethodPost, tracePath, bytes.NewReader(ask), &got); err != nil {
		return err
	}
	if t.write != "" {
		if err := writePcap(t.write, got.Out); err != nil {
			return fmt.Errorf("--write: %w", err)
		}
	}
	return t.print(cmd.OutOrStdout(), traceSheet(got))
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

func writePcap(path string, frame []byte) error {
	var b bytes.Buffer
	w := pcapgo.NewWriter(&b)
	err := errors.Join(w.WriteFileHeader(maxFrame, layers.LinkTypeEthernet), w.WritePacket(gopacket.CaptureInfo{
		Timestamp: time.Now(), CaptureLength: len(frame), Length: len(frame),
	}, frame))
	if err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}
