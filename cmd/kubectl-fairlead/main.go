// Command kubectl-fairlead is a kubectl plugin: it runs query commands of fairlead on the
// agents of a cluster. Only flags belong here.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/kubectl"
	"github.com/fairlead/fairlead/agent/ui"
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
		Short: "Query the agents of a cluster",
		Long: `Run a query command of fairlead (status, get, explain, drops, trace) on the agents of
all nodes in parallel, through the API server, and print one table with a column
NODE. Flags of the plugin come before the command. It needs permission to list pods
and to create pods/exec in the agents' namespace.

status begins with the verdict: whether all nodes agree, and what they disagree about.
sysdump writes the dumps of all nodes, and logs and objects of the cluster, to one
archive without secrets, and prints what is wrong (--file, --max-size, --since).

drain --backend and undrain --backend apply to all nodes: they create and delete a
Quarantine. They need permission to list endpointslices, and to list, create and
delete quarantines.`,
		Example: `  kubectl fairlead status
  kubectl fairlead get services -n default
  kubectl fairlead explain service default/web
  kubectl fairlead --node worker-1 get flows --vip 10.1.1.1
  kubectl fairlead get backends -o json
  kubectl fairlead drain --backend 172.16.1.10 --reason "disk errors"
  kubectl fairlead sysdump
  kubectl fairlead ui`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl fairlead"},
		Version:       version.String(),
		Args:          cobra.MinimumNArgs(1),
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if drainsBackend(args) {
				drain := newDrainCommand(c, args)
				drain.SetOut(cmd.OutOrStdout())
				return drain.ExecuteContext(cmd.Context())
			}
			return kubectl.Run(cmd.Context(), c, args, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.TraverseChildren = true // flags of the plugin come first
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.AddCommand(newUICommand(&c))
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.StringVar(&c.Kubeconfig, "kubeconfig", "", "`FILE` with the credentials of the API server (default: as kubectl)")
	f.StringVar(&c.Context, "context", "", "`NAME` of the context in it")
	f.StringVarP(&c.Namespace, "namespace", "n", kubectl.DefaultNamespace, "`NAMESPACE` of the agents")
	f.StringVarP(&c.Selector, "selector", "l", kubectl.DefaultSelector, "`LABELS` of the agents' pods")
	f.StringVar(&c.Node, "node", "", "query only node `NAME`")
	f.DurationVar(&c.Timeout, "timeout", kubectl.DefaultTimeout, "timeout of each node")
	return cmd
}

func newUICommand(c *kubectl.Config) *cobra.Command {
	var o ui.Options
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Serve a web page of all nodes",
		Long: `Serve a read-only web page of all nodes with an agent: topology with rates, services
and why each is as it is, peers, drops, drains, events and problems (docs/ui.md).
The agents are queried through the API server while a page is open.`,
		Example: `  kubectl fairlead ui
  kubectl fairlead --namespace lb ui --listen 127.0.0.1:9000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return kubectl.ServeUI(cmd.Context(), *c, o, cmd.OutOrStdout())
		},
	}
	o.Flags(cmd.Flags())
	return cmd
}
