package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/events"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/query"
	"github.com/fairlead/fairlead/core/event"
)

func newGetEventsCommand() *cobra.Command {
	e := events.Query{}
	cmd := &cobra.Command{
		Use:     "events",
		Aliases: []string{"event"},
		Short:   "List what changed, when and why",
		Long: `List the events in the agent's journal, oldest first: sessions, BFD, health of
backends, routes, drains, layer 2, rejected configuration, failures, degraded
features. The journal survives a restart. An event that recurs is listed once, with
its count. docs/reference/events.md explains each type.`,
		Example: `  fairlead get events --since 1h
  fairlead get events --service default/web -o wide
  fairlead get events --type PeerDown,BFDDown -w
  fairlead get events -o json | jq '.[] | select(.severity == "Warning")'`,
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return e.Check() },
		RunE:    func(cmd *cobra.Command, _ []string) error { return e.Run(cmd) },
	}
	e.BasicFlags(cmd)
	f := cmd.Flags()
	f.DurationVar(&e.Since, "since", 0, "only events of this last `DURATION` (default: all)")
	f.StringVar(&e.Service, "service", "", "only events of the Service `NAMESPACE/NAME`, its backends and routes")
	f.StringSliceVar(&e.Types, "type", nil, "only events of this `TYPE`; repeatable")
	f.BoolVarP(&e.Watch, "watch", "w", false, "print further events as they happen")
	_ = cmd.RegisterFlagCompletionFunc("type", cobra.FixedCompletions(typeNames(), cobra.ShellCompDirectiveNoFileComp)) // fails only for a flag that does not exist
	_ = cmd.RegisterFlagCompletionFunc("service", e.Complete(query.ServiceNames))
	return cmd
}

func typeNames() (names []string) {
	for _, d := range event.Types {
		names = append(names, string(d.Type))
	}
	return names
}
