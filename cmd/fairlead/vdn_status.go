package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/query"
	"github.com/fairlead/fairlead/vdn/node"
)

func newVDNStatusCommand() *cobra.Command {
	socket := node.Socket
	var p query.Printer
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of the VDN agent on this node",
		Long: `Query the VDN agent on this machine: which controllers are reachable, the revision
of the plan that it enforces, and the reason if that is not the newest. This needs
no controller.`,
		Example: `  fairlead vdn status
  fairlead vdn status -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := askNode(cmd.Context(), socket)
			if err != nil {
				return err
			}
			return p.Print(cmd.OutOrStdout(), nodeSheet(s, time.Now()))
		},
	}
	cmd.Flags().StringVar(&socket, "socket", socket, "`FILE` of the socket of fairlead vdn agent")
	p.Flags(cmd)
	return cmd
}

// maxStatus is the longest answer that is read, in bytes.
const maxStatus = 1 << 20

// askNode queries the status of the agent on a socket.
func askNode(ctx context.Context, socket string) (s node.Status, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c := node.Client(socket)
	defer c.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://node/status", nil)
	if err != nil {
		return s, err
	}
	answer, err := c.Do(r)
	if errors.Is(err, fs.ErrNotExist) {
		return s, fmt.Errorf("fairlead vdn agent does not run on this machine: socket %s does not exist", socket)
	}
	if err != nil {
		return s, fmt.Errorf("fairlead vdn agent at %s: %w", socket, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return s, fmt.Errorf("fairlead vdn agent at %s answers %s: it may be an older version", socket, answer.Status)
	}
	return s, json.NewDecoder(io.LimitReader(answer.Body, maxStatus)).Decode(&s)
}

// nodeSheet prints the status; times are ages at now.
func nodeSheet(s node.Status, now time.Time) status.Sheet {
	ago := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return now.Sub(t).Truncate(time.Second).String()
	}
	sheet := status.Sheet{Value: s, Head: []string{"CONTROLLER", "REACHABLE", "FOR", "ERROR"}}
	line := func(format string, args ...any) { sheet.Lines = append(sheet.Lines, fmt.Sprintf(format, args...)) }
	line("node %s: enforces plan %d by %s: %d networks, %d leases", s.Name, s.Applied, s.Means, s.Networks, s.Attachments)
	switch {
	case s.Since.IsZero():
		line("no controller has been queried yet")
	case !s.Reachable:
		line("no controller has answered for %s: pods keep their networks, new pods are rejected", ago(s.Since))
	}
	if s.Cached {
		line("the plan is read from this node's disk")
	}
	for _, id := range s.Adopted {
		line("lease %s continues without a controller", id)
	}
	if s.Error != "" {
		line("error: plan %d is not completely enforced: %s", s.Plan, s.Error)
	}
	for _, lost := range s.Degraded {
		line("degraded: %s", lost)
	}
	for _, c := range s.Controllers {
		reachable := yes(c.Reachable)
		if !c.Asked {
			reachable = "not queried"
		}
		sheet.Rows = append(sheet.Rows, []string{c.URL, reachable, ago(c.Since), c.Error})
	}
	return sheet
}
