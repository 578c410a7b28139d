package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/dataplane"
)

func newGetFlowsCommand() *cobra.Command {
	f := flows{limit: 1000}
	cmd := &cobra.Command{
		Use:     "flows",
		Aliases: []string{"flow"},
		Short:   "List tracked flows",
		Long: `List the flows that the load balancer tracks (modes nat and fullnat, Services with a
flow table, schedulers that need one), and those that the DSR agent tracks on
nodes with backends. With second chance, flows are tracked by DSR agents only. A
flow with a single packet from the client is listed for nat and fullnat only.

The address of a filter may include a port.`,
		Example: `  fairlead get flows
  fairlead get flows --vip 10.1.1.1:80 --limit 20
  fairlead get flows --client 192.0.2.7 -o json
  fairlead get flows --backend 172.16.1.10:8080 --limit 0`,
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return f.check() },
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.basicFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.vip, "vip", "", "only flows to this `ADDR`")
	flags.StringVar(&f.client, "client", "", "only flows of this client `ADDR`")
	flags.StringVar(&f.backend, "backend", "", "only flows of this backend `ADDR`")
	flags.IntVar(&f.limit, "limit", f.limit, "maximum number of flows; 0 for all")
	return cmd
}

type flows struct {
	apiClient
	vip, client, backend string
	limit                int
}

func (f *flows) check() error {
	for flag, text := range map[string]string{"vip": f.vip, "client": f.client, "backend": f.backend} {
		if text == "" {
			continue
		}
		if _, err := parseEnd(text); err != nil {
			return fmt.Errorf("--%s: %w", flag, err)
		}
	}
	if f.limit < 0 {
		return fmt.Errorf("--limit: %d is negative", f.limit)
	}
	return nil
}

// flow is a tracked flow and the program that tracks it.
type flow struct {
	dataplane.Flow
	// At is "balancer" or "dsr".
	At string `json:"at"`
}

func (f *flows) run(cmd *cobra.Command) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
	defer cancel()
	params := url.Values{"vip": {f.vip}, "client": {f.client}, "backend": {f.backend}}
	if f.limit > 0 {
		params.Set("limit", fmt.Sprint(f.limit+1)) // one more shows whether there are more
	}
	body, err := f.do(ctx, http.MethodGet, flowsPath, params, nil)
	if err != nil {
		return err
	}
	defer body.Close()
	list := []flow{}
	err = each(ctx, body, func(one flow) error {
		list = append(list, one)
		return nil
	})
	if err != nil {
		return err
	}
	if f.limit > 0 && len(list) > f.limit {
		list = list[:f.limit]
		fmt.Fprintf(cmd.ErrOrStderr(), "fairlead: more than %d flows match: add filters or raise --limit\n", f.limit)
	}
	slices.SortStableFunc(list, func(a, b flow) int { return a.Client.Compare(b.Client) })
	return f.print(cmd.OutOrStdout(), flowsSheet(list))
}

func flowsSheet(list []flow) status.Sheet {
	s := status.Sheet{Value: list}
	if len(list) == 0 {
		s.Lines = []string{"no flows"}
		return s
	}
	s.Head = []string{"AT", "PROTOCOL", "CLIENT", "VIP", "BACKEND", "STATE", "IDLE"}
	for _, f := range list {
		s.Rows = append(s.Rows, []string{
			f.At, f.Protocol.String(), f.Client.String(), f.VIP.String(), f.Server.String(), f.State,
			f.Idle.Round(time.Second).String(),
		})
	}
	return s
}

// answerFlows writes the flows that match the request, one JSON value each.
func (a *agent) answerFlows(s *stream, r *http.Request) error {
	q, err := flowQueryOf(r.URL.Query())
	if err != nil {
		return err
	}
	enc := json.NewEncoder(s)
	given := 0
	if a.plane != nil {
		for f, err := range a.plane.EachFlow(q) {
			if err == nil {
				err = enc.Encode(flow{f, "balancer"})
			}
			if err != nil {
				return err
			}
			given++
		}
	}
	if a.dsr == nil || q.Limit > 0 && given == q.Limit {
		return nil
	}
	q.Limit = max(0, q.Limit-given)
	for f, err := range a.dsr.EachFlow(q) {
		if err == nil {
			err = enc.Encode(flow{f, "dsr"})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// flowQueryOf parses the parameters of a request.
func flowQueryOf(values url.Values) (q dataplane.FlowQuery, err error) {
	for key, to := range map[string]*netip.AddrPort{"vip": &q.VIP, "client": &q.Client, "backend": &q.Server} {
		if text := values.Get(key); text != "" {
			if *to, err = parseEnd(text); err != nil {
				return q, fmt.Errorf("%s: %w", key, err)
			}
		}
	}
	if text := values.Get("limit"); text != "" {
		if q.Limit, err = strconv.Atoi(text); err != nil || q.Limit < 0 {
			return q, fmt.Errorf("limit: %q is not a number of at least 0", text)
		}
	}
	return q, nil
}
