package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/internal/cli"
)

func newRootCommand() *cobra.Command {
	root := cli.NewRoot("fairlead", "A layer-4 load balancer of which every copy is active",
		`Fairlead takes the connections to a service's address to its servers, on as
many balancers at once as there are: routers spread the packets over them by
ECMP, and losing a balancer costs no connection.`)
	root.AddGroup(&cobra.Group{ID: groupRun, Title: "Run:"}, &cobra.Group{ID: groupLook, Title: "Look:"})
	root.AddCommand(
		newAgentCommand(),
		newControllerCommand(),
		newCleanupCommand(),
		newDoctorCommand(),
		newReflectorCommand(),
		newRouterCommand(),
		newVDNCommand(),
		newDrainCommand(),
		newStatusCommand(),
		newServicesCommand(),
		newBackendsCommand(),
		newRoutesCommand(),
		newPeersCommand(),
		newExplainCommand(),
		newDropsCommand(),
		newFlowsCommand(),
		newTraceCommand(),
		newCaptureCommand(),
		newImportCommand(),
	)
	return root
}

// Groups of subcommands in the help.
const (
	groupRun  = "run"
	groupLook = "look"
)
