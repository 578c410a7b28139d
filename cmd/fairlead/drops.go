package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/dataplane/xdp"
	"github.com/fairlead/fairlead/internal/decode"
)

// eventsPath streams samples of dropped packets; dropsPath returns counts.
const eventsPath = dropsPath + "/events"

func newDropsCommand() *cobra.Command {
	d := drops{sample: 1}
	cmd := &cobra.Command{
		Use:   "drops [reason...]",
		Short: "What the balancer drops, and why",
		Long: `Drops tells how many packets this balancer has dropped, by reason. With --follow
it goes on with samples of the packets themselves, in words, as they are dropped;
while nobody follows, that costs nothing. What each reason means, and the mend,
is in docs/troubleshooting.md.`,
		Example: `  fairlead drops
  fairlead drops --by-cpu
  fairlead drops --follow --sample 100
  fairlead drops --follow no-frontend rate-limited -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if d.follow {
				return d.tell(cmd, args)
			}
			return d.count(cmd, args)
		},
	}
	d.basicFlags(cmd)
	f := cmd.Flags()
	f.BoolVarP(&d.follow, "follow", "f", false, "go on with samples of what is dropped, until interrupted")
	f.Uint32Var(&d.sample, "sample", d.sample, "follow one packet of so `many`, by chance (rounded up to a power of two)")
	f.IntVar(&d.most, "count", 0, "end after so `many` samples; 0 for no end")
	f.BoolVar(&d.byCPU, "by-cpu", false, "tell what each CPU has counted")
	cmd.ValidArgsFunction = d.reasons
	return cmd
}

type drops struct {
	asker
	follow, byCPU bool
	sample        uint32
	most          int
}

// counts returns the dropped packets by reason and CPU.
func (d *drops) counts(ctx context.Context) (counts map[string][]uint64, err error) {
	err = d.askJSON(ctx, http.MethodGet, dropsPath, nil, &counts)
	return counts, err
}

// reasons completes the names of reasons.
func (d *drops) reasons(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
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
	ctx, cancel := context.WithTimeout(cmd.Context(), 10*time.Second)
	defer cancel()
	counts, err := d.counts(ctx)
	if err != nil {
		return err
	}
	list, err := droppedOf(counts, reasons)
	if err != nil {
		return err
	}
	return status.Write(cmd.OutOrStdout(), d.sheet(list), d.format)
}

// droppedOf returns the given reasons, or all that have occurred.
func droppedOf(counts map[string][]uint64, reasons []string) ([]dropped, error) {
	for _, r := range reasons {
		if _, known := counts[r]; !known {
			return nil, fmt.Errorf("no reason %s: there are %v", r, slices.Sorted(maps.Keys(counts)))
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
		s.Head, s.Lines = nil, []string{"nothing was dropped"}
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

// told is the machine-readable form of an event.
type told struct {
	xdp.Event
	Packet []string `json:"packet"`
}

// tell shows the table first, then the samples.
func (d *drops) tell(cmd *cobra.Command, reasons []string) error {
	if d.format == status.Table {
		if err := d.count(cmd, reasons); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	query := url.Values{"every": {fmt.Sprint(d.sample)}}
	body, err := d.ask(ctx, http.MethodGet, eventsPath, query, nil)
	if err != nil {
		return err
	}
	defer body.Close()
	left := d.most
	return each(ctx, body, func(e xdp.Event) error {
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
	if d.format == status.Table {
		_, err := fmt.Fprintf(out, "%s %s cpu %d %s, %d bytes: %s\n",
			e.Time.Format("15:04:05.000000"), e.Interface, e.CPU, e.Reason, e.Length, decode.Line(e.Data))
		return err
	}
	if d.format == status.YAML {
		fmt.Fprintln(out, "---")
	}
	return status.Write(out, status.Sheet{Value: told{e, decode.Lines(e.Data)}}, d.format)
}

func (a *agent) answerDrops(s *stream, _ *http.Request) error {
	counts, err := a.xdp.DropsByCPU()
	if err != nil {
		return err
	}
	return json.NewEncoder(s).Encode(counts)
}

func (a *agent) answerEvents(s *stream, r *http.Request) error {
	every, err := strconv.ParseUint(r.URL.Query().Get("every"), 10, 32)
	if err != nil {
		return fmt.Errorf("every: %w", err)
	}
	events, err := a.xdp.Events(r.Context(), uint32(every))
	if err != nil {
		return err
	}
	s.Flush()
	enc := json.NewEncoder(s)
	for e := range events {
		if err := enc.Encode(e); err != nil {
			continue // the client has disconnected, so events will end
		}
		s.Flush()
	}
	return nil
}
