// Package page is the command fairlead ui: its flags, and which agents it queries. The page
// itself is agent/ui.
package page

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/socket"
	"github.com/fairlead/fairlead/agent/ui"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/query"
	"github.com/fairlead/fairlead/vdn/client"
)

// New returns the command.
func New() *cobra.Command {
	u := command{}
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Serve a web page of the cluster",
		Long: `Serve a read-only web page: topology with rates and the state of sessions, services
and why each is as it is, peers, drops, drains, events and problems. The agents are
queried while a page is open; those that do not answer are named.

An agent is the path of its socket or HOST:PORT of a forwarded one, optionally after
NAME=. Without --agents, all sockets in /run/fairlead are queried. kubectl fairlead ui
serves the same page of all nodes of a cluster.

The page has no authentication. It listens on a loopback address, and answers only
requests for such names, unless --listen says otherwise.`,
		Example: `  fairlead ui
  fairlead ui --agents lb1=/tmp/lb1.sock,lb2=127.0.0.1:9002
  fairlead ui --vdn-controller http://127.0.0.1:7473`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return u.run(cmd) },
	}
	f := cmd.Flags()
	f.StringSliceVar(&u.agents, "agents", nil, "`ADDRESSES` of agents (default: the sockets in "+socket.Dir+")")
	f.StringVar(&u.networks.URL, "vdn-controller", "", "`URL` of the controllers of virtual networks, separated by commas (default: none)")
	f.StringVar(&u.networks.TokenFile, "vdn-token-file", "", "`FILE` with the token of the controller")
	f.StringVar(&u.networks.CAFile, "vdn-ca-file", "", "`FILE` with the controller's CA (PEM; default: the system's)")
	u.options.Flags(f)
	return cmd
}

type command struct {
	agents   []string
	networks client.Config
	options  ui.Options
}

func (u *command) run(cmd *cobra.Command) (err error) {
	addresses := u.agents
	if len(addresses) == 0 {
		if addresses, err = socket.All(socket.Dir); err != nil {
			return err
		}
	}
	if len(addresses) == 0 {
		return fmt.Errorf("no agent has a socket in %s: pass --agents if they answer elsewhere", socket.Dir)
	}
	if u.options.Agents, err = ui.Agents(addresses); err != nil {
		return fmt.Errorf("--agents: %w", err)
	}
	if u.networks.URL != "" {
		c, err := client.New(u.networks)
		if err != nil {
			return err
		}
		u.options.Networks = func(ctx context.Context) (any, error) {
			view, _, err := c.View(ctx, 0, 0)
			return view, err
		}
	}
	return u.options.Run(cmd.Context(), cmd.OutOrStdout())
}

// NewConnect returns the command that kubectl fairlead ui runs in pods.
func NewConnect() *cobra.Command {
	var q query.Query
	cmd := &cobra.Command{
		Use:     "connect",
		Short:   "Connect standard input and output to the agent's socket",
		Long:    `Connect standard input and output to the agent's socket, as kubectl fairlead ui does.`,
		Example: `  fairlead connect --socket /run/fairlead/agent.sock`,
		Hidden:  true,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			socket, err := q.SocketPath(cmd.Context())
			if err != nil {
				return err
			}
			conn, err := (&net.Dialer{}).DialContext(cmd.Context(), "unix", socket)
			if err != nil {
				return err
			}
			go func() {
				_, _ = io.Copy(conn, cmd.InOrStdin()) // ends with either side
				conn.Close()
			}()
			if _, err = io.Copy(cmd.OutOrStdout(), conn); errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		},
	}
	query.SocketFlag(cmd.Flags(), &q.Socket)
	return cmd
}
