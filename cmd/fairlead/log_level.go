package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/query"
	"github.com/fairlead/fairlead/internal/logging"
)

func newLogLevelCommand() *cobra.Command {
	var l logLevelCommand
	cmd := &cobra.Command{
		Use:   "log-level [LEVEL]",
		Short: "Show or change the log level of a running daemon",
		Long: `Change the least level of the lines that a running agent, router, reflector or VDN
agent logs: debug, info, warn or error. Without a level, print the current one. The
previous level applies again after --for, and that of --log-level after a restart.`,
		Example: `  fairlead log-level
  fairlead log-level debug --for 10m
  fairlead log-level info --socket /run/fairlead/router.sock`,
		Args:              cobra.MaximumNArgs(1),
		GroupID:           groupRun,
		ValidArgsFunction: cobra.FixedCompletions([]string{"debug", "info", "warn", "error"}, cobra.ShellCompDirectiveNoFileComp),
		RunE:              l.run,
	}
	query.SocketFlag(cmd.Flags(), &l.Socket)
	cmd.Flags().DurationVar(&l.duration, "for", 0, "time after which the previous level applies again; 0 keeps the new one")
	return cmd
}

// logLevelCommand shows or changes a level.
type logLevelCommand struct {
	query.Query
	duration time.Duration
}

func (l *logLevelCommand) run(cmd *cobra.Command, args []string) error {
	method, params := http.MethodGet, url.Values(nil)
	if len(args) > 0 {
		method, params = http.MethodPost, url.Values{"level": {args[0]}, "for": {l.duration.String()}}
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

func (l *logLevelCommand) check(args []string) error {
	var level slog.Level
	switch {
	case l.duration < 0:
		return fmt.Errorf("--for: %s is negative", l.duration)
	case len(args) == 0 && l.duration != 0:
		return fmt.Errorf("--for: pass the level, too, as in fairlead log-level debug --for %s", l.duration)
	case len(args) > 0 && level.UnmarshalText([]byte(args[0])) != nil:
		return fmt.Errorf("%q is none of debug, info, warn and error", args[0])
	}
	return nil
}
