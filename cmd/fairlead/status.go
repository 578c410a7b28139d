package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/status"
)

func newStatusCommand() *cobra.Command {
	var l look
	var ready bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "How the agent, reflector or router here is doing",
		Long: `Status sums up what runs here. Of an agent: its data plane or server half, how
many services, servers and routes it holds, its routing peers, and every problem
by name. Of a reflector or a router: its peers and routes. As JSON or YAML it is
all that is known.

With --ready it says whether an agent does all of its work, and ends with 1 and what
it waits for where not: what it serves has been read and the first whole pass is in
the kernel; and of the BGP peers that it has, one session is established, and all of
them within 30 seconds after its start. Reflectors and routers are ready once they answer.`,
		Example: `  fairlead status
  fairlead status --watch
  fairlead status --ready
  fairlead status -o json | jq .problems
  fairlead status --socket /run/fairlead/router.sock`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if ready {
				return l.showReady(cmd)
			}
			return l.show(cmd, func(s status.Status) (status.View, error) { return s.Overview(), nil })
		},
	}
	l.flags(cmd)
	cmd.Flags().BoolVar(&ready, "ready", false, "say only whether it is ready")
	cmd.MarkFlagsMutuallyExclusive("ready", "watch")
	return cmd
}

// showReady prints whether the process is ready, and returns an error if not.
func (l *look) showReady(cmd *cobra.Command) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), askLimit)
	defer cancel()
	socket, err := l.where(ctx)
	if err != nil {
		return err
	}
	r, err := status.FetchReady(ctx, socket)
	if err != nil {
		return err
	}
	if r.Ready || l.format != status.Table {
		err = status.Write(cmd.OutOrStdout(), r.Sheet(), l.format)
	}
	return errors.Join(err, r.Err())
}
