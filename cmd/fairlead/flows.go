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

func newFlowsCommand() *cobra.Command {
	f := flows{limit: 1000}
	cmd := &cobra.Command{
		Use:   "flows",
		Short: "The flows that are remembered here",
		Long: `Flows lists what a balancer remembers, of the Services that make it remember
(nat, fullnat, flow tables, schedulers that take turns or count), and what the
server half remembers on a node with servers. Services with a second chance
leave nothing in a balancer: their flows are at the servers' nodes. A flow whose
client has sent one packet only is in the list by nat and fullnat alone.

An address in --vip, --client and --backend may have a port, or none for all.`,
		Example: `  fairlead flows
  fairlead flows --vip 10.1.1.1:80 --limit 20
  fairlead flows --client 192.0.2.7 -o json
  fairlead flows --backend 172.16.1.10:8080 --limit 0`,
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return f.check() },
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.basicFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.vip, "vip", "", "only to this `address`")
	flags.StringVar(&f.client, "client", "", "only from this `address`")
	flags.StringVar(&f.backend, "backend", "", "only at this `address`")
	flags.IntVar(&f.limit, "limit", f.limit, "no more than so `many`; 0 for all")
	return cmd
}

type flows struct {
	asker
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
		return fmt.Errorf("--limit: %d is below 0", f.limit)
	}
	return nil
}

// flow is a flow tracked by the load balancer or the DSR agent.
type flow struct {
	dataplane.Flow
	// At is "balancer" or "server".
	At string `json:"at"`
}

func (f *flows) run(cmd *cobra.Command) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
	defer cancel()
	query := url.Values{"vip": {f.vip}, "client": {f.client}, "backend": {f.backend}}
	if f.limit > 0 {
		query.Set("limit", fmt.Sprint(f.limit+1)) // one extra shows that there are more
	}
	body, err := f.ask(ctx, http.MethodGet, flowsPath, query, nil)
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
		fmt.Fprintf(cmd.ErrOrStderr(), "fairlead: there are more than %d: narrow it down, or raise --limit\n", f.limit)
	}
	slices.SortStableFunc(list, func(a, b flow) int { return a.Client.Compare(b.Client) })
	return status.Write(cmd.OutOrStdout(), flowsSheet(list), f.format)
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

// answerFlows writes the requested flows, one JSON value each.
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
	if a.half == nil || q.Limit > 0 && given == q.Limit {
		return nil
	}
	q.Limit = max(0, q.Limit-given)
	for f, err := range a.half.EachFlow(q) {
		if err == nil {
			err = enc.Encode(flow{f, "server"})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// flowQueryOf parses a flow query.
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
			return q, fmt.Errorf("limit: %q is no number from 0", text)
		}
	}
	return q, nil
}
