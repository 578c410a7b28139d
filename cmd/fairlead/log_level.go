package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/loglevel"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/query"
)

func newLogLevelCommand() *cobra.Command {
	var l loglevel.Command
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
		RunE:              l.Run,
	}
	query.SocketFlag(cmd.Flags(), &l.Socket)
	cmd.Flags().DurationVar(&l.For, "for", 0, "time after which the previous level applies again; 0 keeps the new one")
	return cmd
}
