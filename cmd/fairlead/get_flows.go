package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/api"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/query"
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
	f.BasicFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.vip, "vip", "", "only flows to this `ADDR`")
	flags.StringVar(&f.client, "client", "", "only flows of this client `ADDR`")
	flags.StringVar(&f.backend, "backend", "", "only flows of this backend `ADDR`")
	flags.IntVar(&f.limit, "limit", f.limit, "maximum number of flows; 0 for all")
	return cmd
}

type flows struct {
	query.Query
	vip, client, backend string
	limit                int
}

func (f *flows) check() error {
	for flag, text := range map[string]string{"vip": f.vip, "client": f.client, "backend": f.backend} {
		if text == "" {
			continue
		}
		if _, err := api.ParseEnd(text); err != nil {
			return fmt.Errorf("--%s: %w", flag, err)
		}
	}
	if f.limit < 0 {
		return fmt.Errorf("--limit: %d is negative", f.limit)
	}
	return nil
}

func (f *flows) run(cmd *cobra.Command) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
	defer cancel()
	params := url.Values{"vip": {f.vip}, "client": {f.client}, "backend": {f.backend}}
	if f.limit > 0 {
		params.Set("limit", fmt.Sprint(f.limit+1)) // one more shows whether there are more
	}
	body, err := f.Do(ctx, http.MethodGet, api.FlowsPath, params, nil)
	if err != nil {
		return err
	}
	defer body.Close()
	list := []api.Flow{}
	err = query.Each(ctx, body, func(one api.Flow) error {
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
	slices.SortStableFunc(list, func(a, b api.Flow) int { return a.Client.Compare(b.Client) })
	return f.Print(cmd.OutOrStdout(), flowsSheet(list))
}

func flowsSheet(list []api.Flow) status.Sheet {
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
