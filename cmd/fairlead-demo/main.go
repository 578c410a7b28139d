// Command fairlead-demo is "fairlead-lab demo" alone, so that "make demo" need not compile
// benchmarks, simulator and plotting. This package only contains wiring.
package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/internal/cli"
	"github.com/fairlead/fairlead/cmd/internal/labcmd"
)

func main() { cli.Main(newRootCommand()) }

func newRootCommand() *cobra.Command {
	root := cli.NewRoot("fairlead-demo", "Demonstrate Fairlead on this machine",
		"Fairlead-demo has the command demo of fairlead-lab, and compiles faster.")
	root.AddCommand(labcmd.NewDemoCommand(root.Name()))
	return root
}
