package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/cmd/internal/cli"
)

// look contains what the query commands share: the socket and the output format.
type look struct {
	socket string
	format status.Format
	watch  time.Duration
}

// flags adds the shared flags to a query command.
func (l *look) flags(cmd *cobra.Command) {
	l.basicFlags(cmd)
	f := cmd.Flags()
	f.DurationVarP(&l.watch, "watch", "w", 0, "ask again and again, this long apart; 1s where nothing is said")
	f.Lookup("watch").NoOptDefVal = "1s"
}

// basicFlags adds the flags of a command that queries once.
func (l *look) basicFlags(cmd *cobra.Command) {
	cmd.GroupID = groupLook
	f := cmd.Flags()
	f.StringVar(&l.socket, "socket", "", "`file` to ask on (default: the one in "+status.SocketDir+")")
	outputFlag(cmd, &l.format)
}

// show queries the agent and writes the view, once or until interrupted.
func (l *look) show(cmd *cobra.Command, view func(status.Status) (status.View, error)) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	if err := l.once(ctx, out, view); err != nil || l.watch <= 0 {
		return err
	}
	tick := time.NewTicker(l.watch)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		fmt.Fprint(out, l.between(out))
		if err := l.once(ctx, out, view); err != nil && ctx.Err() == nil {
			// An agent that restarts is unavailable for a moment: continue.
			fmt.Fprintln(cmd.ErrOrStderr(), "fairlead:", err)
		}
	}
}

// askLimit is the timeout for an answer.
const askLimit = 10 * time.Second

func (l *look) once(ctx context.Context, out io.Writer, view func(status.Status) (status.View, error)) error {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	s, err := l.fetch(ctx)
	if err != nil {
		return err
	}
	v, err := view(s)
	if err != nil {
		return err
	}
	return status.Write(out, v, l.format)
}

// fetch queries the socket, or the only one if none is specified.
func (l *look) fetch(ctx context.Context) (status.Status, error) {
	socket, err := l.where(ctx)
	if err != nil {
		return status.Status{}, err
	}
	return status.Fetch(ctx, socket)
}

// where returns the socket to query.
func (l *look) where(ctx context.Context) (string, error) {
	if l.socket != "" {
		return l.socket, nil
	}
	return status.Find(ctx, status.SocketDir)
}

// between returns the separator of two views: on a terminal, the screen is cleared for a
// table; otherwise they are documents of one stream.
func (l *look) between(out io.Writer) string {
	switch {
	case l.format == status.YAML:
		return "---\n"
	case l.format == status.JSON:
		return ""
	case cli.IsTerminal(out):
		return "\x1b[H\x1b[2J"
	}
	return "\n"
}

// formatFlag validates -o while flags are parsed.
type formatFlag status.Format

func (f *formatFlag) String() string { return string(*f) }
func (f *formatFlag) Type() string   { return "format" }

func (f *formatFlag) Set(s string) error {
	parsed, err := status.ParseFormat(s)
	*f = formatFlag(parsed)
	return err
}

// outputFlag adds the flag for the format; table is the default.
func outputFlag(cmd *cobra.Command, format *status.Format) {
	*format = status.Table
	cmd.Flags().VarP((*formatFlag)(format), "output", "o", "table, json or yaml")
	_ = cmd.RegisterFlagCompletionFunc("output", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return formatNames(), cobra.ShellCompDirectiveNoFileComp
	}) // fails only for an undefined flag
}

func formatNames() []string {
	names := make([]string, len(status.Formats))
	for i, f := range status.Formats {
		names[i] = string(f)
	}
	return names
}

// serviceNames lists the agent's Services for shell completion.
func (l *look) serviceNames(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	var names []string
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if s, err := l.fetch(ctx); err == nil {
		for _, svc := range s.Services {
			if strings.HasPrefix(svc.ID, prefix) {
				names = append(names, svc.ID)
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
