package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/internal/version"
)

// Exit codes, the same for every subcommand.
const (
	exitGood   = 0
	exitFailed = 1 // what was asked for failed
	exitUsage  = 2 // the command line or the configuration is wrong
)

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "fairlead",
		Short: "A layer-4 load balancer of which every copy is active",
		Long: `Fairlead takes the connections to a service's address to its servers, on as
many balancers at once as there are: routers spread the packets over them by
ECMP, and losing a balancer costs no connection.

Exit codes: 0 good, 1 what was asked for failed, 2 usage or configuration error.`,
		Version:           version.String(),
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	var level slog.LevelVar
	root.PersistentFlags().TextVar(&level, "log-level", &level, "least `level` of log lines: DEBUG, INFO, WARN or ERROR")
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: &level})))
	root.AddGroup(&cobra.Group{ID: groupRun, Title: "Run:"}, &cobra.Group{ID: groupLook, Title: "Look:"})
	root.AddCommand(newAgentCommand())
	root.AddCommand(newControllerCommand())
	root.AddCommand(newCleanupCommand())
	root.AddCommand(newDoctorCommand())
	root.AddCommand(newReflectorCommand())
	root.AddCommand(newRouterCommand())
	root.AddCommand(newVDNCommand())
	root.AddCommand(newDrainCommand())
	root.AddCommand(newDemoCommand())
	root.AddCommand(newSimCommand())
	root.AddCommand(newBenchCommand())
	root.AddCommand(newStatusCommand())
	root.AddCommand(newServicesCommand())
	root.AddCommand(newBackendsCommand())
	root.AddCommand(newRoutesCommand())
	root.AddCommand(newPeersCommand())
	root.AddCommand(newExplainCommand())
	root.AddCommand(newDropsCommand())
	root.AddCommand(newFlowsCommand())
	root.AddCommand(newTraceCommand())
	root.AddCommand(newCaptureCommand())
	root.AddCommand(newImportCommand())
	root.AddCommand(newVersionCommand())
	root.AddCommand(newCompletionCommand())
	return root
}

// The groups of subcommands in the help.
const (
	groupRun  = "run"
	groupLook = "look"
)

// run carries out a command line and gives the exit code.
func run(ctx context.Context, root *cobra.Command, args []string) int {
	started := false
	noteStart(root, &started)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitGood
	}
	fmt.Fprintln(cmd.ErrOrStderr(), "fairlead:", err)
	switch {
	case !started:
		fmt.Fprintf(cmd.ErrOrStderr(), "see %s --help\n", cmd.CommandPath())
		return exitUsage
	case errors.Is(err, config.ErrInvalid):
		return exitUsage
	}
	return exitFailed
}

// noteStart makes every command tell when it starts its work: an error before
// that is one of usage, whoever found it.
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
