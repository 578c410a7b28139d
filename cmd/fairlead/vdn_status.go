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
	"github.com/fairlead/fairlead/vdn/node"
)

func newVDNStatusCommand() *cobra.Command {
	socket := node.Socket
	var format status.Format
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show whether this node reaches a controller, and which plan it enforces",
		Long: `Status asks fairlead vdn node on this machine: which controllers answer, and since when
not; the revision of the plan that is enforced, and why the newest is not. It needs no
controller.`,
		Example: `  fairlead vdn status
  fairlead vdn status -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := askNode(cmd.Context(), socket)
			if err != nil {
				return err
			}
			return status.Write(cmd.OutOrStdout(), nodeSheet(s, time.Now()), format)
		},
	}
	cmd.Flags().StringVar(&socket, "socket", socket, "`file` that fairlead vdn node answers on")
	outputFlag(cmd, &format)
	return cmd
}

// askNode queries the status of the daemon on a socket.
func askNode(ctx context.Context, socket string) (s node.Status, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	asker := node.Asker(socket)
	defer asker.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://node/status", nil)
	if err != nil {
		return s, err
	}
	answer, err := asker.Do(r)
	if errors.Is(err, fs.ErrNotExist) {
		return s, fmt.Errorf("fairlead vdn node does not run on this machine: there is no socket %s", socket)
	}
	if err != nil {
		return s, fmt.Errorf("fairlead vdn node at %s: %w", socket, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return s, fmt.Errorf("fairlead vdn node at %s answers %s: is it of an older version?", socket, answer.Status)
	}
	return s, json.NewDecoder(io.LimitReader(answer.Body, mostAsked)).Decode(&s)
}

// nodeSheet formats the status. Times are shown as ages.
func nodeSheet(s node.Status, now time.Time) status.Sheet {
	ago := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return now.Sub(t).Truncate(time.Second).String()
	}
	sheet := status.Sheet{Value: s, Head: []string{"CONTROLLER", "REACHABLE", "FOR", "ERROR"}}
	line := func(format string, args ...any) { sheet.Lines = append(sheet.Lines, fmt.Sprintf(format, args...)) }
	line("node %s: enforces plan %d by %s: %d networks, %d attachments", s.Name, s.Applied, s.Means, s.Networks, s.Attachments)
	switch {
	case s.Since.IsZero():
		line("no controller has been asked yet")
	case !s.Reachable:
		line("no controller has answered for %s: attachments keep working, new ones are refused", ago(s.Since))
	}
	if s.Cached {
		line("the plan is the last one on this node's disk")
	}
	for _, id := range s.Adopted {
		line("attachment %s continues its lease without a controller", id)
	}
	if s.Error != "" {
		line("error: plan %d does not hold entirely: %s", s.Plan, s.Error)
	}
	for _, lost := range s.Degraded {
		line("degraded: %s", lost)
	}
	for _, c := range s.Controllers {
		reachable := yes(c.Reachable)
		if !c.Asked {
			reachable = "not asked"
		}
		sheet.Rows = append(sheet.Rows, []string{c.URL, reachable, ago(c.Since), c.Error})
	}
	return sheet
}
