// Package cli contains what the command lines of fairlead and fairlead-lab share: exit
// codes, the root command, completion, and output of results. Subcommands belong to their
// programs.
package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/internal/logging"
	"github.com/fairlead/fairlead/internal/version"
)

// Exit codes, the same for every subcommand.
const (
	ExitGood   = 0
	ExitFailed = 1 // the requested operation failed
	ExitUsage  = 2 // the command line or the configuration is wrong
)

// ErrDifferent makes a command that has printed a difference end with ExitFailed, without a
// message.
var ErrDifferent = errors.New("different")

// NewRoot returns a root command with the flags and subcommands that every
// program has. Logs go to standard error.
func NewRoot(use, short, long string) *cobra.Command {
	root := &cobra.Command{
		Use:   use,
		Short: short,
		Long: long + `

Exit codes: 0 good, 1 what was asked for failed, 2 usage or configuration error.`,
		Version:           version.String(),
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	log := logging.New(os.Stderr)
	slog.SetDefault(log.Logger())
	f := root.PersistentFlags()
	f.TextVar(log.Level(), "log-level", log.Level(), "least `level` of log lines: DEBUG, INFO, WARN or ERROR")
	f.Var(log.Format(), "log-format", "`format` of log lines: text or json")
	_ = root.RegisterFlagCompletionFunc("log-format", cobra.FixedCompletions(logging.Formats, cobra.ShellCompDirectiveNoFileComp)) // fails only for a flag that does not exist
	root.AddCommand(newVersionCommand(use), newCompletionCommand(use))
	root.SetUsageFunc(writeUsage)
	return root
}

// Main runs the command line of this process and ends it. The first SIGINT or
// SIGTERM cancels the context of the command, the second ends the process.
func Main(root *cobra.Command) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	code := Run(ctx, root, os.Args[1:])
	logging.Of(slog.Default()).Flush()
	stop()
	os.Exit(code)
}

// Run executes a command line and returns the exit code.
func Run(ctx context.Context, root *cobra.Command, args []string) int {
	started := false
	noteStart(root, &started)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitGood
	}
	if errors.Is(err, ErrDifferent) {
		return ExitFailed
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s: %v\n", root.Name(), err)
	switch {
	case !started:
		fmt.Fprintf(cmd.ErrOrStderr(), "see %s --help\n", cmd.CommandPath())
		return ExitUsage
	case errors.Is(err, config.ErrInvalid):
		return ExitUsage
	}
	return ExitFailed
}

// noteStart makes every command record when it starts its work: any error before that is
// a usage error.
func noteStart(cmd *cobra.Command, started *bool) {
	if work := cmd.RunE; work != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			*started = true
			return work(cmd, args)
		}
	}
	for _, sub := range cmd.Commands() {
		noteStart(sub, started)
	}
}
