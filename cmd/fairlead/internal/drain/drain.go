// Package drain runs fairlead drain and fairlead undrain.
//
// Flags and help belong to the commands, what a drain does to package reconciler. The
// commands are tested in lab/e2e.
package drain

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/api"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/selection"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/query"
)

// Command starts or ends a drain.
type Command struct {
	query.Query
	wait time.Duration
	// backend is set to drain a backend instead of the node, and service limits that.
	backend, service, reason string
	force                    bool
}

// BackendFlags adds the flags that select a backend.
func (d *Command) BackendFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&d.backend, "backend", "", "`ADDR[:PORT]` of a backend, instead of this load balancer")
	f.StringVar(&d.service, "service", "", "with --backend: only in the Service `NAMESPACE/NAME` (default: in all)")
	_ = cmd.RegisterFlagCompletionFunc("service", d.Complete(query.ServiceNames)) // fails only for a flag that does not exist
}

// OrderFlags adds the flags of fairlead drain --backend.
func (d *Command) OrderFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&d.reason, "reason", "", "with --backend: `TEXT` that status and events show")
	f.BoolVar(&d.force, "force", false, "with --backend: even if it is the last one that takes new flows of a Service")
}

// Flags adds the flags of the command; wait is the usage of --wait.
func (d *Command) Flags(cmd *cobra.Command, wait string) {
	query.SocketFlag(cmd.Flags(), &d.Socket)
	cmd.Flags().DurationVar(&d.wait, "wait", 0, wait)
}

// Run starts a drain, or ends it.
func (d *Command) Run(cmd *cobra.Command, drain bool) error {
	if d.wait < 0 {
		return config.Invalid(fmt.Errorf("--wait: %s is negative", d.wait))
	}
	if d.backend != "" {
		return d.runBackend(cmd, drain)
	}
	if d.service != "" || d.reason != "" || d.force {
		return config.Invalid(errors.New("--service, --reason and --force are for --backend"))
	}
	body, err := d.Do(cmd.Context(), http.MethodPost, api.DrainPath, url.Values{"undo": {fmt.Sprint(!drain)}}, nil)
	if err != nil {
		return err
	}
	if err := body.Close(); err != nil || d.wait == 0 {
		return err
	}
	return d.await(cmd, drain)
}

// await waits until the agent is drained, or until it is not draining by command.
func (d *Command) await(cmd *cobra.Command, drain bool) error {
	s, inTime, err := d.poll(cmd.Context(), selection.Selection{}, d.wait, func(s status.Status) bool {
		return !drain && s.Drain == nil || drain && s.Drain != nil && s.Drain.Stage == status.Drained
	})
	if err == nil && !inTime {
		return fmt.Errorf("timed out after %s: %s", d.wait, s.DrainWords())
	}
	return err
}

// poll queries the agent until its status is as expected, or until patience ends.
func (d *Command) poll(ctx context.Context, only selection.Selection, patience time.Duration, expected func(status.Status) bool) (s status.Status, inTime bool, err error) {
	const interval = 100 * time.Millisecond
	for end := time.Now().Add(patience); ; time.Sleep(interval) {
		s, err = d.FetchOnly(ctx, only)
		switch {
		case err != nil:
			return s, false, err
		case expected(s):
			return s, true, nil
		case ctx.Err() != nil:
			return s, false, ctx.Err()
		case time.Now().After(end):
			return s, false, nil
		}
	}
}
