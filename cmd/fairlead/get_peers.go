package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/query"
)

func newGetPeersCommand() *cobra.Command {
	var q query.Query
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
		ValidArgsFunction: q.Complete(peerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return q.Show(cmd, func(s status.Status) (status.View, error) {
				s, err := s.OnlyPeers(args...)
				return s.PeersView(), err
			})
		},
	}
	q.Flags(cmd)
	return cmd
}

// peerNames returns the names and addresses of the peers, for completion.
func peerNames(s status.Status) (names []string) {
	for _, p := range s.Peers {
		names = append(names, p.Name, p.Address)
	}
	return names
}
