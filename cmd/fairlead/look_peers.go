package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/status"
)

func newPeersCommand() *cobra.Command {
	var l look
	cmd := &cobra.Command{
		Use:   "peers [peer...]",
		Short: "The routing sessions, since when they are as they are, and why",
		Long: `Peers shows for each BGP session its state and since when it has it, what BFD says,
the prefixes heard and told now, the updates and the ends of established sessions
(flaps) so far, and in words why it last ended or could not come up.`,
		Example: `  fairlead peers
  fairlead peers tor-1 --watch
  fairlead peers -o json | jq '.[] | select(.state != "established")'`,
		ValidArgsFunction: l.peerNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return l.show(cmd, func(s status.Status) (status.View, error) {
				s, err := s.OnlyPeers(args...)
				return s.PeersView(), err
			})
		},
	}
	l.flags(cmd)
	return cmd
}

// peerNames lists the peers, with their names and addresses, for shell completion.
func (l *look) peerNames(cmd *cobra.Command, _ []string, prefix string) (names []string, _ cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if s, err := l.fetch(ctx); err == nil {
		for _, p := range s.Peers {
			names = append(names, p.Name, p.Address)
		}
	}
	slices.Sort(names)
	names = slices.DeleteFunc(slices.Compact(names), func(n string) bool { return n == "" || !strings.HasPrefix(n, prefix) })
	return names, cobra.ShellCompDirectiveNoFileComp
}
