// Command fairlead-lab demonstrates, measures and simulates Fairlead on one machine. It
// runs the fairlead binary next to it, as it is installed. It is never part of an image
// or a package of the product. This package only contains flags and wiring, one file per
// subcommand.
package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/internal/cli"
	"github.com/fairlead/fairlead/cmd/internal/labcmd"
)

func main() { cli.Main(newRootCommand()) }

func newRootCommand() *cobra.Command {
	root := cli.NewRoot("fairlead-lab", "Demonstrate, measure and simulate Fairlead on this machine",
		`Fairlead-lab runs the whole of Fairlead on one machine, in network namespaces with
real traffic, measures it, and simulates what does not fit on one machine. It is a
tool for development and evaluation and not part of an installation.`)
	root.AddCommand(labcmd.NewDemoCommand("fairlead-lab"), newSimCommand(), newBenchCommand(), newPapersCommand())
	return root
}
