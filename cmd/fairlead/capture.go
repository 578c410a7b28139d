package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/api"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/pcap"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/query"
	"github.com/fairlead/fairlead/dataplane/xdp/capture"
)

func newCaptureCommand() *cobra.Command {
	c := capturer{}
	cmd := &cobra.Command{
		Use:   "capture",
		Short: "Capture packets before and after XDP processing",
		Long: `Capture packets as the load balancer receives and sends them to a pcapng file.
tcpdump on the same machine sees neither. Interfaces in the file are named
"eth0 in" and "eth0 out XDP_TX"; a comment links the two records of a packet.
The kernel applies the filters, so that captures work under load; there is no
cost while nobody captures. Stop with --count or Ctrl-C.`,
		Example: `  fairlead capture -o web.pcapng --vip 10.1.1.1 --port 80 --count 100
  fairlead capture -o - --client 192.0.2.7 --after | tcpdump -nr -
  fairlead capture -o busy.pcapng --sample 1000 --snaplen 128`,
		Args:    cobra.NoArgs,
		GroupID: groupQuery,
		PreRunE: func(*cobra.Command, []string) error { return c.check() },
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	f := cmd.Flags()
	query.SocketFlag(f, &c.Socket)
	f.StringVarP(&c.file, "output", "o", "", "`FILE` to write (pcapng); - for standard output")
	f.StringVar(&c.o.Interface, "interface", "", "only packets received on interface `NAME`")
	f.StringVar(&c.vip, "vip", "", "only from or to this `ADDR`, also inside a tunnel")
	f.StringVar(&c.client, "client", "", "only from or to this `ADDR`, also inside a tunnel")
	f.Uint16Var(&c.o.Port, "port", 0, "only from or to this `PORT`")
	f.IntVar(&c.o.Count, "count", 0, "exit after `N` packets; 0 for no limit")
	f.IntVar(&c.o.Sample, "sample", 0, "capture one of `N` packets at random; 0 for all")
	f.IntVar(&c.o.Snaplen, "snaplen", 0, "capture at most `BYTES` of a frame; 0 for all")
	f.BoolVar(&c.o.Before, "before", false, "only packets before XDP processing")
	f.BoolVar(&c.o.After, "after", false, "only packets after XDP processing")
	f.BoolVar(&c.both, "both", false, "packets before and after XDP processing (default)")
	_ = cmd.MarkFlagRequired("output")
	cmd.MarkFlagsMutuallyExclusive("before", "after", "both")
	return cmd
}

type capturer struct {
	query.Query
	file        string
	vip, client string
	both        bool
	o           capture.Options
}

func (c *capturer) check() (err error) {
	for flag, f := range map[string]struct {
		text string
		to   *netip.Addr
	}{"vip": {c.vip, &c.o.VIP}, "client": {c.client, &c.o.Client}} {
		if f.text == "" {
			continue
		}
		if *f.to, err = netip.ParseAddr(f.text); err != nil {
			return fmt.Errorf("--%s: %q is not an IP address", flag, f.text)
		}
	}
	if !c.o.Before && !c.o.After {
		c.o.Before, c.o.After = true, true
	}
	if err := c.o.Validate(); err != nil {
		return fmt.Errorf("--%w", err)
	}
	return nil
}

func (c *capturer) run(cmd *cobra.Command) error {
	ctx := cmd.Context()
	ask, err := json.Marshal(c.o)
	if err != nil {
		return err
	}
	body, err := c.Do(ctx, http.MethodGet, api.CapturePath, url.Values{"options": {string(ask)}}, nil)
	if err != nil {
		return err
	}
	defer body.Close()
	out := cmd.OutOrStdout()
	if c.file != "-" {
		file, err := os.Create(c.file)
		if err != nil {
			return fmt.Errorf("--write: %w", err)
		}
		defer file.Close()
		out = file
	}
	n, lost, err := pcap.CopyBlocks(ctx, out, body)
	fmt.Fprintf(cmd.ErrOrStderr(), "fairlead: %d frames written to %s, %d lost\n", n, c.file, lost)
	return err
}
