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

// look is what the looking commands share: where to ask, and how to show.
type look struct {
	socket string
	format status.Format
	watch  time.Duration
}

// flags adds the shared flags to a looking command.
func (l *look) flags(cmd *cobra.Command) {
	l.basicFlags(cmd)
	f := cmd.Flags()
	f.DurationVarP(&l.watch, "watch", "w", 0, "ask again and again, this long apart; 1s where nothing is said")
	f.Lookup("watch").NoOptDefVal = "1s"
}

// basicFlags are the flags of a command that looks once.
func (l *look) basicFlags(cmd *cobra.Command) {
	cmd.GroupID = groupLook
	f := cmd.Flags()
	f.StringVar(&l.socket, "socket", "", "`file` to ask on (default: the one in "+status.SocketDir+")")
	outputFlag(cmd, &l.format)
}

// show asks the agent and writes the view, once or until interrupted.
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
			// An agent that restarts is away for a moment: go on asking.
			fmt.Fprintln(cmd.ErrOrStderr(), "fairlead:", err)
		}
	}
}

// askLimit is how long an answer may take.
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

// fetch asks on the socket, or on the only one where none is named.
func (l *look) fetch(ctx context.Context) (status.Status, error) {
	socket, err := l.where(ctx)
	if err != nil {
		return status.Status{}, err
	}
	return status.Fetch(ctx, socket)
}

// where gives the socket to ask on.
func (l *look) where(ctx context.Context) (string, error) {
	if l.socket != "" {
		return l.socket, nil
	}
	return status.Find(ctx, status.SocketDir)
}

// between parts two views: a terminal's screen is cleared for a table, else
// they follow each other as documents of one stream.
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

// formatFlag refuses a wrong -o while flags are parsed.
type formatFlag status.Format

func (f *formatFlag) String() string { return string(*f) }
func (f *formatFlag) Type() string   { return "format" }

func (f *formatFlag) Set(s string) error {
	parsed, err := status.ParseFormat(s)
	*f = formatFlag(parsed)
	return err
}

// outputFlag adds the flag for the format; a table is the default.
func outputFlag(cmd *cobra.Command, format *status.Format) {
	*format = status.Table
	cmd.Flags().VarP((*formatFlag)(format), "output", "o", "table, json or yaml")
	_ = cmd.RegisterFlagCompletionFunc("output", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return formatNames(), cobra.ShellCompDirectiveNoFileComp
	}) // fails only for a flag that is not there
}

func formatNames() []string {
	names := make([]string, len(status.Formats))
	for i, f := range status.Formats {
		names[i] = string(f)
	}
	return names
}

// serviceNames lists the agent's services for the shell's completion.
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
