package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/gdamore/tcell/v2"
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/rates"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/query"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/top"
	"github.com/fairlead/fairlead/cmd/internal/cli"
)

// liveView holds the flags of fairlead top.
type liveView struct {
	query.Query
	rates rates.Query
	once  bool
}

func newTopCommand() *cobra.Command {
	v := liveView{rates: rates.Default(rates.Services)}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show rates, peers, drains, drops and events live",
		Long: `Show what this node does right now, full screen: packets, bits and new flows per
second of each Service, frontend and backend, dropped packets by reason, peers,
drains and events. Enter opens a row: a Service, a frontend, a backend with its
health, the error of its last probe and its events. ? lists the keys.

With --once, print one table after two readings of the counters. Without a
terminal that can position the cursor, print a table at each interval. The agent
reads its counters only while somebody looks, and uses at most 2% of a core.`,
		Example: `  fairlead top
  fairlead top --view backends --sort state
  fairlead top --once --view frontends --filter shop/ --limit 20
  fairlead top --once -o json | jq '.rows[] | {service, packetsPerSecond}'`,
		Args: cobra.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if !v.once && cmd.Flags().Changed("output") {
				return fmt.Errorf("--output: only with --once")
			}
			return v.rates.Check()
		},
		RunE: v.run,
	}
	v.BasicFlags(cmd)
	f := cmd.Flags()
	f.StringVar((*string)(&v.rates.View), "view", string(v.rates.View), "view to begin with: "+strings.Join(cli.Texts(rates.Views), ", "))
	f.StringVar((*string)(&v.rates.Sort), "sort", string(v.rates.Sort), "`COLUMN` to sort by: "+strings.Join(cli.Texts(rates.Columns), ", "))
	f.StringVar(&v.rates.Filter, "filter", "", "only rows with this `TEXT` in a name, an address, a node or a state")
	f.IntVar(&v.rates.Limit, "limit", v.rates.Limit, "maximum number of rows of a table")
	f.DurationVar(&v.rates.Interval, "interval", v.rates.Interval, "time between two readings of the counters")
	f.BoolVar(&v.once, "once", false, "print one table and exit")
	for flag, values := range map[string][]string{"view": cli.Texts(rates.Views), "sort": cli.Texts(rates.Columns)} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // fails only for a flag that does not exist
	}
	return cmd
}

func (v *liveView) run(cmd *cobra.Command, _ []string) (err error) {
	ctx, out, q := cmd.Context(), cmd.OutOrStdout(), v.rates
	if v.Socket, err = v.SocketPath(ctx); err != nil { // found once, not for every query
		return err
	}
	m, fetch := top.New(top.Tab(q.View), q.Sort, q.Filter, q.Interval), top.FromAgent(&v.Query)
	if v.once {
		r, err := top.Once(ctx, m, q.Limit, fetch)
		if err != nil {
			return err
		}
		return v.Print(out, top.Sheet(r))
	}
	if screen := screenOn(out); screen != nil {
		return top.Run(ctx, screen, m, fetch)
	}
	return top.Stream(ctx, out, m, q.Limit, fetch, func(to io.Writer, view status.View) error { return v.Print(to, view) })
}

// screenOn returns the screen of a terminal, or nil if it has none.
func screenOn(out io.Writer) tcell.Screen {
	if !cli.IsTerminal(out) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	screen, err := tcell.NewScreen()
	if err != nil {
		return nil
	}
	return screen
}
