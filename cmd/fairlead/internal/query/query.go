// Package query is what query commands share: which agent they ask, how they print, and
// requests with one answer or a stream of them.
//
// What a command asks for, and its own flags, belong to the command. Tests need no agent:
// they pass the bytes that one would send.
package query

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/agent/selection"
	"github.com/fairlead/fairlead/agent/socket"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/cmd/internal/cli"
)

// Printer prints the results of a query command.
type Printer struct{ Output status.Output }

// Flags adds -o and --no-headers. The default is a table.
func (p *Printer) Flags(cmd *cobra.Command) {
	p.Output.Format = status.Table
	cmd.Flags().VarP((*formatFlag)(&p.Output.Format), "output", "o", "table, wide, json or yaml")
	cmd.Flags().BoolVar(&p.Output.NoHeaders, "no-headers", false, "omit the headers of tables")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(cli.Texts(status.Formats), cobra.ShellCompDirectiveNoFileComp)) // fails only for a flag that does not exist
}

// Print writes a view as the flags request.
func (p *Printer) Print(out io.Writer, v status.View) error {
	p.Output.Color = cli.IsTerminal(out) && os.Getenv("NO_COLOR") == ""
	return status.Print(out, v, p.Output)
}

// Query holds the flags that queries of an agent share: which agent, and how to print.
type Query struct {
	Printer
	Socket    string
	namespace string
	watch     time.Duration
}

// Flags adds the flags of a command that can watch.
func (q *Query) Flags(cmd *cobra.Command) {
	q.BasicFlags(cmd)
	f := cmd.Flags()
	f.DurationVarP(&q.watch, "watch", "w", 0, "refresh continuously at this interval")
	f.Lookup("watch").NoOptDefVal = "1s"
}

// BasicFlags adds the flags of a command that queries once.
func (q *Query) BasicFlags(cmd *cobra.Command) {
	SocketFlag(cmd.Flags(), &q.Socket)
	q.Printer.Flags(cmd)
}

// NamespaceFlag adds the flag that selects Services by namespace.
func (q *Query) NamespaceFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&q.namespace, "namespace", "n", "", "only Services of this `NAMESPACE` (default: all)")
}

// SocketFlag adds the flag that names the agent's socket.
func SocketFlag(f *pflag.FlagSet, path *string) {
	f.StringVar(path, "socket", "", "`FILE` of the agent's socket (default: the only one in "+socket.Dir+")")
}

// Show queries the agent and prints the view, once or until it is interrupted.
func (q *Query) Show(cmd *cobra.Command, view func(status.Status) (status.View, error)) error {
	return q.ShowOnly(cmd, selection.Selection{}, view)
}

// ShowOnly is Show for the status of what is selected, which may contain more.
func (q *Query) ShowOnly(cmd *cobra.Command, only selection.Selection, view func(status.Status) (status.View, error)) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	if err := q.once(ctx, out, only, view); err != nil || q.watch <= 0 {
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
		if err := q.once(ctx, out, only, view); err != nil && ctx.Err() == nil {
			// The agent may be restarting: keep trying.
			fmt.Fprintln(cmd.ErrOrStderr(), "fairlead:", err)
		}
	}
}

// ShowServices is show for the Services that args and --namespace select.
func (q *Query) ShowServices(cmd *cobra.Command, args []string, view func(status.Status) status.View) error {
	return q.Show(cmd, func(s status.Status) (status.View, error) {
		s, err := s.InNamespace(q.namespace).Only(args...)
		return view(s), err
	})
}

// InNamespace returns a status with the Services that --namespace selects.
func (q *Query) InNamespace(s status.Status) status.Status { return s.InNamespace(q.namespace) }

// Timeout bounds one query.
const Timeout = 10 * time.Second

func (q *Query) once(ctx context.Context, out io.Writer, only selection.Selection, view func(status.Status) (status.View, error)) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	s, err := q.FetchOnly(ctx, only)
	if err != nil {
		return err
	}
	v, err := view(s)
	if err != nil {
		return err
	}
	return q.Print(out, v)
}

// Fetch queries the agent's status.
func (q *Query) Fetch(ctx context.Context) (status.Status, error) {
	return q.FetchOnly(ctx, selection.Selection{})
}

// FetchOnly queries the agent's status of what is selected.
func (q *Query) FetchOnly(ctx context.Context, only selection.Selection) (status.Status, error) {
	socket, err := q.SocketPath(ctx)
	if err != nil {
		return status.Status{}, err
	}
	return status.FetchOnly(ctx, socket, only)
}

// SocketPath returns --socket, or the only socket that answers.
func (q *Query) SocketPath(ctx context.Context) (string, error) {
	if q.Socket != "" {
		return q.Socket, nil
	}
	return status.Find(ctx, socket.Dir)
}

// separator parts two views. A terminal is cleared between tables; otherwise views
// follow each other as documents of one stream.
func (q *Query) separator(out io.Writer) string {
	switch {
	case q.Output.Format == status.YAML:
		return "---\n"
	case q.Output.Format == status.JSON:
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

// CompletionTimeout bounds what shell completion waits for.
const CompletionTimeout = 2 * time.Second

// Complete completes an argument by names that the agent knows.
func (q *Query) Complete(names func(status.Status) []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(context.Background(), CompletionTimeout)
		defer cancel()
		s, err := q.Fetch(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return Matching(names(s), prefix), cobra.ShellCompDirectiveNoFileComp
	}
}

// Matching returns the names that begin with a prefix, sorted and each once.
func Matching(names []string, prefix string) []string {
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(n string) bool { return n == "" || !strings.HasPrefix(n, prefix) })
}

// ServiceNames returns the names of the Services, for completion.
func ServiceNames(s status.Status) (names []string) {
	for _, svc := range s.Services {
		names = append(names, svc.ID)
	}
	return names
}

// ShowReady prints whether the daemon is ready. It is an error if it is not.
func (q *Query) ShowReady(cmd *cobra.Command) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), Timeout)
	defer cancel()
	socket, err := q.SocketPath(ctx)
	if err != nil {
		return err
	}
	r, err := status.FetchReady(ctx, socket)
	if err != nil {
		return err
	}
	if r.Ready || q.Output.Format != status.Table {
		err = q.Print(cmd.OutOrStdout(), r.Sheet())
	}
	return errors.Join(err, r.Err())
}
