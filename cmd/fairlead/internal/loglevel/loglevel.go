// Package loglevel runs fairlead log-level. Flags and help belong to the command, levels to
// internal/logging. The command is tested in cmd/fairlead/testdata.
package loglevel

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/query"
	"github.com/fairlead/fairlead/internal/logging"
)

// Command shows or changes a level.
type Command struct {
	query.Query
	// For is how long the new level applies; 0: permanently.
	For time.Duration
}

// Run prints the level, or the new one.
func (l *Command) Run(cmd *cobra.Command, args []string) error {
	method, params := http.MethodGet, url.Values(nil)
	if len(args) > 0 {
		method, params = http.MethodPost, url.Values{"level": {args[0]}, "for": {l.For.String()}}
	}
	if err := l.check(args); err != nil {
		return config.Invalid(err)
	}
	body, err := l.Do(cmd.Context(), method, logging.Path, params, nil)
	if err != nil {
		return err
	}
	defer body.Close()
	var s logging.State
	if err := json.NewDecoder(body).Decode(&s); err != nil {
		return fmt.Errorf("the daemon's response is incomplete: %w", err)
	}
	fmt.Fprintln(cmd.OutOrStdout(), s)
	return nil
}

func (l *Command) check(args []string) error {
	switch {
	case l.For < 0:
		return fmt.Errorf("--for: %s is negative", l.For)
	case len(args) == 0 && l.For != 0:
		return fmt.Errorf("--for: pass the level, too, as in fairlead log-level debug --for %s", l.For)
	case len(args) > 0:
		_, err := logging.ParseLevel(args[0])
		return err
	}
	return nil
}
