package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/api"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/query"
	"github.com/fairlead/fairlead/dataplane/xdp"
	"github.com/fairlead/fairlead/internal/pktdump"
)

func newDropsCommand() *cobra.Command {
	d := drops{sample: 1}
	cmd := &cobra.Command{
		Use:   "drops [REASON...]",
		Short: "Show dropped packets by reason",
		Long: `Show how many packets this load balancer dropped, by reason. With --follow, also
print samples of the packets as they are dropped; sampling has no cost while
nobody follows. docs/troubleshooting.md explains each reason and its fix.`,
		Example: `  fairlead drops
  fairlead drops --by-cpu
  fairlead drops --follow --sample 100
  fairlead drops --follow no-frontend rate-limited -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if d.follow {
				return d.stream(cmd, args)
			}
			return d.count(cmd, args)
		},
	}
	d.BasicFlags(cmd)
	f := cmd.Flags()
	f.BoolVarP(&d.follow, "follow", "f", false, "print samples of dropped packets until interrupted")
	f.Uint32Var(&d.sample, "sample", d.sample, "sample one of `N` packets at random (rounded up to a power of two)")
	f.IntVar(&d.most, "count", 0, "exit after `N` samples; 0 for no limit")
	f.BoolVar(&d.byCPU, "by-cpu", false, "show the count of each CPU")
	cmd.ValidArgsFunction = d.reasons
	return cmd
}

type drops struct {
	query.Query
	follow, byCPU bool
	sample        uint32
	most          int
}

// counts queries the drops: by reason, the count of each CPU.
func (d *drops) counts(ctx context.Context) (counts map[string][]uint64, err error) {
	err = d.DoJSON(ctx, http.MethodGet, api.DropsPath, nil, nil, &counts)
	return counts, err
}

// reasons completes drop reasons.
func (d *drops) reasons(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.Background(), query.CompletionTimeout)
	defer cancel()
	counts, err := d.counts(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.Sorted(maps.Keys(counts)), cobra.ShellCompDirectiveNoFileComp
}

// dropped is the output for one reason.
type dropped struct {
	Reason  string   `json:"reason"`
	Packets uint64   `json:"packets"`
	ByCPU   []uint64 `json:"byCPU"`
}

func (d *drops) count(cmd *cobra.Command, reasons []string) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), query.Timeout)
	defer cancel()
	counts, err := d.counts(ctx)
	if err != nil {
		return err
	}
	list, err := droppedOf(counts, reasons)
	if err != nil {
		return err
	}
	return d.Print(cmd.OutOrStdout(), d.sheet(list))
}

// droppedOf returns the named reasons, or all with at least one packet.
func droppedOf(counts map[string][]uint64, reasons []string) ([]dropped, error) {
	for _, r := range reasons {
		if _, known := counts[r]; !known {
			return nil, fmt.Errorf("unknown drop reason %s: use one of %v", r, slices.Sorted(maps.Keys(counts)))
		}
	}
	list := []dropped{}
	for _, r := range slices.Sorted(maps.Keys(counts)) {
		shown := dropped{Reason: r, ByCPU: counts[r]}
		for _, n := range counts[r] {
			shown.Packets += n
		}
		if slices.Contains(reasons, r) || len(reasons) == 0 && shown.Packets > 0 {
			list = append(list, shown)
		}
	}
	return list, nil
}

func (d *drops) sheet(list []dropped) status.Sheet {
	s := status.Sheet{Value: list, Head: []string{"REASON", "PACKETS"}}
	if len(list) == 0 {
		s.Head, s.Lines = nil, []string{"no drops"}
	}
	for i, r := range list {
		row := []string{r.Reason, fmt.Sprint(r.Packets)}
		for cpu, n := range r.ByCPU {
			if !d.byCPU {
				break
			}
			if i == 0 {
				s.Head = append(s.Head, fmt.Sprint("CPU", cpu))
			}
			row = append(row, fmt.Sprint(n))
		}
		s.Rows = append(s.Rows, row)
	}
	return s
}

// sampledDrop is an event in JSON and YAML.
type sampledDrop struct {
	xdp.Event
	Packet []string `json:"packet"`
}

// stream prints the table first, then the samples.
func (d *drops) stream(cmd *cobra.Command, reasons []string) error {
	if d.Output.Format == status.Table {
		if err := d.count(cmd, reasons); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	params := url.Values{"every": {fmt.Sprint(d.sample)}}
	body, err := d.Do(ctx, http.MethodGet, api.EventsPath, params, nil)
	if err != nil {
		return err
	}
	defer body.Close()
	left := d.most
	return query.Each(ctx, body, func(e xdp.Event) error {
		if len(reasons) > 0 && !slices.Contains(reasons, e.Reason) {
			return nil
		}
		if err := d.show(cmd, e); err != nil {
			return err
		}
		if left--; left == 0 {
			cancel()
		}
		return nil
	})
}

func (d *drops) show(cmd *cobra.Command, e xdp.Event) error {
	out := cmd.OutOrStdout()
	if d.Output.Format == status.Table {
		_, err := fmt.Fprintf(out, "%s %s cpu %d %s, %d bytes: %s\n",
			e.Time.Format("15:04:05.000000"), e.Interface, e.CPU, e.Reason, e.Length, pktdump.Line(e.Data))
		return err
	}
	if d.Output.Format == status.YAML {
		fmt.Fprintln(out, "---")
	}
	return d.Print(out, status.Sheet{Value: sampledDrop{e, pktdump.Lines(e.Data)}})
}
