package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/status"
)

func newExplainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "explain",
		Short:   "Why a service is, or is not, announced here",
		GroupID: groupLook,
		Example: `  fairlead explain announce default/web`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newExplainAnnounceCommand())
	return cmd
}

func newExplainAnnounceCommand() *cobra.Command {
	var l look
	cmd := &cobra.Command{
		Use:   "announce [service...]",
		Short: "Whether this node announces a service's addresses, and which rule said so",
		Long: `Announce says of every address of the services named, or of all, whether this
balancer announces it, and names the rule that decided: the first of those that say
no, or announced. What must be right, in the order in which it is asked for: a
frontend of the address is held (else its state is the rule: no-healthy-backend,
elsewhere, conflict, refused, ...), an Announcement is for it here (announcement,
terms), the node has a next hop (no-next-hop), the balancer is not on its way out
(draining), and a BGP session is established (no-peers, no-session, not-for-peer).

kubectl fairlead explain announce asks every node of a cluster.`,
		Example: `  fairlead explain announce default/web
  fairlead explain announce -o json`,
		ValidArgsFunction: l.serviceNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return l.show(cmd, func(s status.Status) (status.View, error) {
				s, err := s.Only(args...)
				return s.ExplainAnnounceView(), err
			})
		},
	}
	l.flags(cmd)
	cmd.GroupID = ""
	return cmd
}
