package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/kubectl"
)

// drainsBackend reports whether arguments are those of drain --backend or undrain --backend,
// which apply to the cluster: they are not run on the nodes.
func drainsBackend(args []string) bool {
	return (args[0] == "drain" || args[0] == "undrain") && slices.ContainsFunc(args, func(arg string) bool {
		return arg == "--backend" || strings.HasPrefix(arg, "--backend=")
	})
}

// newDrainCommand returns the command for such arguments.
func newDrainCommand(c kubectl.Config, args []string) *cobra.Command {
	order, run := kubectl.Quarantine{}, kubectl.Undrain
	cmd := &cobra.Command{
		Use: args[0] + " --backend ADDR", Args: cobra.NoArgs, SilenceErrors: true, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), c, order, cmd.OutOrStdout()) },
	}
	f := cmd.Flags()
	f.StringVar(&order.Backend, "backend", "", "`ADDR[:PORT]` of the backend")
	f.StringVar(&order.Service, "service", "", "only in the Service `NAMESPACE/NAME` (default: in all)")
	if args[0] == "drain" {
		run = kubectl.Drain
		f.StringVar(&order.Reason, "reason", "", "`TEXT` that status and Events show")
		f.BoolVar(&order.Force, "force", false, "even if it is the last one that takes new flows of a Service")
	}
	cmd.SetArgs(args[1:])
	return cmd
}
