// Command kubectl-fairlead is a kubectl plugin: it runs the query commands of fairlead on
// the agents of a cluster through its API server. This package only contains flags.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/kubectl"
	"github.com/fairlead/fairlead/internal/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	cmd := newCommand()
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "kubectl fairlead:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	c := kubectl.Config{}
	cmd := &cobra.Command{
		Use:   "kubectl-fairlead [flags] COMMAND [ARGS...]",
		Short: "Ask the agents of a cluster",
		Long: `Kubectl fairlead runs a looking command of fairlead (status, services, backends,
routes, drops, flows, trace) in the pods of the agents, through the API server,
and shows the answers of all nodes, or of the one that --node names. Its own
flags come before the command. It asks for the right to list pods and to create
pods/exec in the agents' namespace.`,
		Example: `  kubectl fairlead status
  kubectl fairlead --node worker-1 flows --vip 10.1.1.1
  kubectl fairlead services -o json`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl fairlead"},
		Version:       version.String(),
		Args:          cobra.MinimumNArgs(1),
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return kubectl.Run(cmd.Context(), c, args, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.StringVar(&c.Kubeconfig, "kubeconfig", "", "`file` that says how to reach the cluster (default: as kubectl)")
	f.StringVar(&c.Context, "context", "", "`name` of the context in it")
	f.StringVarP(&c.Namespace, "namespace", "n", kubectl.DefaultNamespace, "`namespace` of the agents")
	f.StringVarP(&c.Selector, "selector", "l", kubectl.DefaultSelector, "`labels` of the agents' pods")
	f.StringVar(&c.Node, "node", "", "`name` of the only node to ask")
	return cmd
}
