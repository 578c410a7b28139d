package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/status"
)

func newGetPeersCommand() *cobra.Command {
	var q query
	cmd := &cobra.Command{
		Use:     "peers [PEER...]",
		Aliases: []string{"peer"},
		Short:   "List BGP, L2 and cloud sessions",
		Long: `List each session with its state, how long it has had this state, the state of
BFD, the number of prefixes received and sent, and the last error. -o wide adds
the UPDATE messages and the flaps (established sessions that ended). PEER is a
name or an address.`,
		Example: `  fairlead get peers
  fairlead get peers tor-1 --watch
  fairlead get peers -o json | jq '.[] | select(.state != "established")'`,
		ValidArgsFunction: q.peerNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return q.show(cmd, func(s status.Status) (status.View, error) {
				s, err := s.OnlyPeers(args...)
				return s.PeersView(), err
			})
		},
	}
	q.flags(cmd)
	return cmd
}

// peerNames completes the names and addresses of peers.
func (q *query) peerNames(cmd *cobra.Command, _ []string, prefix string) (names []string, _ cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	if s, err := q.fetch(ctx); err == nil {
		for _, p := range s.Peers {
			names = append(names, p.Name, p.Address)
		}
	}
	slices.Sort(names)
	names = slices.DeleteFunc(slices.Compact(names), func(n string) bool { return n == "" || !strings.HasPrefix(n, prefix) })
	return names, cobra.ShellCompDirectiveNoFileComp
}
