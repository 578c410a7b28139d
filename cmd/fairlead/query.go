package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/cmd/internal/cli"
)

// printer prints the results of a query command.
type printer struct{ output status.Output }

// flags adds -o and --no-headers. The default is a table.
func (p *printer) flags(cmd *cobra.Command) {
	p.output.Format = status.Table
	cmd.Flags().VarP((*formatFlag)(&p.output.Format), "output", "o", "table, wide, json or yaml")
	cmd.Flags().BoolVar(&p.output.NoHeaders, "no-headers", false, "omit the headers of tables")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(cli.Texts(status.Formats), cobra.ShellCompDirectiveNoFileComp)) // fails only for a flag that does not exist
}

// print writes a view as the flags request.
func (p *printer) print(out io.Writer, v status.View) error {
	p.output.Color = cli.IsTerminal(out) && os.Getenv("NO_COLOR") == ""
	return status.Print(out, v, p.output)
}

// query holds the flags that queries of an agent share: which agent, and how to print.
type query struct {
	printer
	socket    string
	namespace string
	watch     time.Duration
}

// flags adds the flags of a command that can watch.
func (q *query) flags(cmd *cobra.Command) {
	q.basicFlags(cmd)
	f := cmd.Flags()
	f.DurationVarP(&q.watch, "watch", "w", 0, "refresh continuously at this interval")
	f.Lookup("watch").NoOptDefVal = "1s"
}

// basicFlags adds the flags of a command that queries once.
func (q *query) basicFlags(cmd *cobra.Command) {
	socketFlag(cmd.Flags(), &q.socket)
	q.printer.flags(cmd)
}

// namespaceFlag adds the flag that selects Services by namespace.
func (q *query) namespaceFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&q.namespace, "namespace", "n", "", "only Services of this `NAMESPACE` (default: all)")
}

// socketFlag adds the flag that names the agent's socket.
func socketFlag(f *pflag.FlagSet, socket *string) {
	f.StringVar(socket, "socket", "", "`FILE` of the agent's socket (default: the only one in "+status.SocketDir+")")
}

// show queries the agent and prints the view, once or until it is interrupted.
func (q *query) show(cmd *cobra.Command, view func(status.Status) (status.View, error)) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	if err := q.once(ctx, out, view); err != nil || q.watch <= 0 {
		return err
	}
	tick := time.NewTicker(q.watch)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		fmt.Fprint(out, q.separator(out))
		if err := q.once(ctx, out, view); err != nil && ctx.Err() == nil {
			// The agent may be restarting: keep trying.
			fmt.Fprintln(cmd.ErrOrStderr(), "fairlead:", err)
		}
	}
}

// showServices is show for the Services that args and --namespace select.
func (q *query) showServices(cmd *cobra.Command, args []string, view func(status.Status) status.View) error {
	return q.show(cmd, func(s status.Status) (status.View, error) {
		s, err := s.InNamespace(q.namespace).Only(args...)
		return view(s), err
	})
}

// queryTimeout bounds one query.
const queryTimeout = 10 * time.Second

func (q *query) once(ctx context.Context, out io.Writer, view func(status.Status) (status.View, error)) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	s, err := q.fetch(ctx)
	if err != nil {
		return err
	}
	v, err := view(s)
	if err != nil {
		return err
	}
	return q.print(out, v)
}

// fetch queries the agent's status.
func (q *query) fetch(ctx context.Context) (status.Status, error) {
	socket, err := q.socketPath(ctx)
	if err != nil {
		return status.Status{}, err
	}
	return status.Fetch(ctx, socket)
}

// socketPath returns --socket, or the only socket that answers.
func (q *query) socketPath(ctx context.Context) (string, error) {
	if q.socket != "" {
		return q.socket, nil
	}
	return status.Find(ctx, status.SocketDir)
}

// separator parts two views. A terminal is cleared between tables; otherwise views
// follow each other as documents of one stream.
func (q *query) separator(out io.Writer) string {
	switch {
	case q.output.Format == status.YAML:
		return "---\n"
	case q.output.Format == status.JSON:
		return ""
	case cli.IsTerminal(out):
		return "\x1b[H\x1b[2J"
	}
	return "\n"
}

// formatFlag rejects an unknown -o while flags are parsed.
type formatFlag status.Format

func (f *formatFlag) String() string { return string(*f) }
func (f *formatFlag) Type() string   { return "FORMAT" }

func (f *formatFlag) Set(s string) error {
	parsed, err := status.ParseFormat(s)
	*f = formatFlag(parsed)
	return err
}

// completionTimeout bounds what shell completion waits for.
const completionTimeout = 2 * time.Second

// complete completes an argument by names that the agent knows.
func (q *query) complete(names func(status.Status) []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
		defer cancel()
		s, err := q.fetch(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return matching(names(s), prefix), cobra.ShellCompDirectiveNoFileComp
	}
}

// matching returns the names that begin with a prefix, sorted and each once.
func matching(names []string, prefix string) []string {
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(n string) bool { return n == "" || !strings.HasPrefix(n, prefix) })
}

// serviceNames returns the names of the Services, for completion.
func serviceNames(s status.Status) (names []string) {
	for _, svc := range s.Services {
		names = append(names, svc.ID)
	}
	return names
}
