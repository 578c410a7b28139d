package labcmd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/internal/cli"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/version"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/demo"
	"github.com/fairlead/fairlead/lab/sandbox"
)

// NewDemoCommand returns the command demo of a program.
func NewDemoCommand(program string) *cobra.Command {
	o := demo.Options{
		Version: version.String(), Balancers: 3, Servers: 4, Method: string(service.DefaultMethod),
		Scheduler: string(service.DefaultScheduler), Duration: 20 * time.Second, Router: cluster.RouterFairlead,
		Report: filepath.Join("out", "demo.html"),
	}
	var asJSON bool
	var fairlead Product
	var format Format
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run the whole system on this machine, with real traffic",
		Long: `Build the network of the paper from network namespaces: a client, an upstream
router, a route reflector, balancers in their own namespaces, and web servers. Under
load, add, remove, kill and cut off balancers, and add, drain and kill servers.
Report for each event when the kernel's routes (or the balancers' data planes) had
followed, and what the clients lost.

Requires root. Everything runs in namespaces that end with the command: Ctrl-C
leaves nothing behind.`,
		Example: strings.ReplaceAll(`  PROGRAM demo
  PROGRAM demo --method fullnat --balancers 2
  PROGRAM demo --router frr
  PROGRAM demo -o json | jq .passed`, "PROGRAM", program),
		Args: cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) (err error) {
			o.Binary, err = fairlead.Find()
			return errors.Join(err, o.Validate(), format.Validate())
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDemo(cmd, o, asJSON || format == JSON)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Balancers, "balancers", o.Balancers, "balancers of the first service at the start")
	f.IntVar(&o.Servers, "servers", o.Servers, "servers of the first service at the start")
	f.StringVar(&o.Method, "method", o.Method, "forwarding mode: fullnat, dsr-nat or tunnel")
	f.StringVar(&o.Scheduler, "scheduler", o.Scheduler, "scheduler: maglev or rr")
	f.DurationVar(&o.Duration, "duration", o.Duration, "duration of the load")
	f.StringVar(&o.Router, "router", o.Router, "upstream router: fairlead, frr or bird")
	f.StringVar(&o.Report, "report", o.Report, "`file` for the HTML report; empty for none")
	f.StringVar(&o.Logs, "logs", "", "`folder` for the logs of all processes")
	f.BoolVar(&o.Keep, "keep", false, "keep everything running until Ctrl-C")
	fairlead.Flag(cmd)
	format.Flag(cmd)
	f.BoolVar(&asJSON, "json", false, "same as --output json: one JSON object on stdout, everything else on stderr")
	for flag, values := range map[string][]string{
		"method": cli.Texts(service.Methods), "scheduler": cli.Texts(service.Schedulers), "router": cluster.Routers,
	} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

func runDemo(cmd *cobra.Command, o demo.Options, asJSON bool) error {
	if err := sandbox.Enter(sandbox.Options{Name: "demo", Net: true}); err != nil {
		return err
	}
	o.Out = cmd.OutOrStdout()
	if asJSON {
		o.Out = cmd.ErrOrStderr()
	}
	o.Width = cli.TerminalWidth(o.Out)
	if o.Logs != "" {
		if err := os.MkdirAll(o.Logs, 0o755); err != nil {
			return err
		}
	}
	result, err := demo.Run(cmd.Context(), o)
	if asJSON {
		err = errors.Join(err, cli.PrintJSON(cmd.OutOrStdout(), result))
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(o.Out, result.Verdict())
	if !result.Passed {
		return errors.New("the demo failed")
	}
	return nil
}
