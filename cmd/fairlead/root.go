package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/convert"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/dump"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/page"
	"github.com/fairlead/fairlead/cmd/internal/cli"
)

func newRootCommand() *cobra.Command {
	root := cli.NewRoot("fairlead", "Active-active layer-4 load balancer",
		`Fairlead is an active-active layer-4 load balancer for Kubernetes and bare metal.
Routers spread packets over all load balancers by ECMP, and losing one breaks no
connection.`)
	root.AddGroup(&cobra.Group{ID: groupRun, Title: "Daemons and maintenance:"}, &cobra.Group{ID: groupQuery, Title: "Query:"})
	ui := page.New()
	ui.GroupID = groupQuery
	root.AddCommand(
		newAgentCommand(),
		newControllerCommand(),
		newRouterCommand(),
		newReflectorCommand(),
		newVDNCommand(),
		newDrainCommand(),
		newUndrainCommand(),
		newLogLevelCommand(),
		newCleanupCommand(),
		newStatusCommand(),
		newTopCommand(),
		ui,
		page.NewConnect(),
		newGetCommand(),
		newExplainCommand(),
		newDropsCommand(),
		newTraceCommand(),
		newCaptureCommand(),
		newDoctorCommand(),
		dump.Command(groupQuery),
		convert.NewCommand(),
		newCheckCommand(),
		newDiffCommand(),
	)
	groupDaemonFlags(root)
	return root
}

// Groups of subcommands in the help.
const (
	groupRun   = "run"
	groupQuery = "query"
)
