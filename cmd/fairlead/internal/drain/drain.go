// Package drain runs fairlead drain and fairlead undrain.
//
// Flags and help belong to the commands, what a drain does to package reconciler. The
// commands are tested in lab/e2e.
package drain

import (
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/api"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/query"
)

// Command starts or ends a drain.
type Command struct {
	query.Query
	wait time.Duration
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
	const interval = 100 * time.Millisecond
	for end := time.Now().Add(d.wait); ; time.Sleep(interval) {
		s, err := d.Fetch(cmd.Context())
		switch {
		case err != nil:
			return err
		case !drain && s.Drain == nil, drain && s.Drain != nil && s.Drain.Stage == status.Drained:
			return nil
		case cmd.Context().Err() != nil:
			return cmd.Context().Err()
		case time.Now().After(end):
			return fmt.Errorf("timed out after %s: %s", d.wait, s.DrainWords())
		}
	}
}
