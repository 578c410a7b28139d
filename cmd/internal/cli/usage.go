package cli

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// groupAnnotation holds the group of a flag, and on a command the order of its groups.
const groupAnnotation = "fairlead/group"

// FlagGroup is a group of flags in a command's help. A name that ends in "*" stands for all
// flags with that prefix.
type FlagGroup struct {
	Title string
	Flags []string
}

// GroupFlags groups flags of a command in its help. A name that matches no flag panics.
func GroupFlags(cmd *cobra.Command, groups ...FlagGroup) {
	var titles []string
	for _, g := range groups {
		titles = append(titles, g.Title)
		for _, name := range g.Flags {
			if !groupFlag(cmd.Flags(), name, g.Title) {
				panic("cli: " + cmd.Name() + " has no flag " + name)
			}
		}
	}
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[groupAnnotation] = strings.Join(titles, "\n")
}

// groupFlag puts the flags that name matches into a group, and reports whether there are any.
func groupFlag(flags *pflag.FlagSet, name, title string) (found bool) {
	prefix, wild := strings.CutSuffix(name, "*")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name == name || wild && strings.HasPrefix(f.Name, prefix) {
			found = true
			_ = flags.SetAnnotation(f.Name, groupAnnotation, []string{title}) // fails only for a flag that does not exist
		}
	})
	return found
}

// writeUsage writes the usage of a command, with its flags by group. It replaces cobra's
// template: text/template calls methods by name, so the linker would keep every method of
// the binary (8 MB).
func writeUsage(cmd *cobra.Command) error {
	var b strings.Builder
	b.WriteString("Usage:")
	if cmd.Runnable() {
		b.WriteString("\n  " + cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		b.WriteString("\n  " + cmd.CommandPath() + " [command]")
	}
	if len(cmd.Aliases) > 0 {
		b.WriteString("\n\nAliases:\n  " + cmd.NameAndAliases())
	}
	if cmd.HasExample() {
		b.WriteString("\n\nExamples:\n" + cmd.Example)
	}
	b.WriteString(listCommands(cmd))
	if cmd.HasAvailableLocalFlags() {
		b.WriteString(FlagUsages(cmd))
	}
	if cmd.HasAvailableInheritedFlags() {
		b.WriteString("\n\nGlobal Flags:\n" + strings.TrimRight(listFlags(all(cmd.InheritedFlags())), "\n"))
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n\nUse \"%s [command] --help\" for more information about a command.", cmd.CommandPath())
	}
	_, err := fmt.Fprintln(cmd.OutOrStderr(), b.String())
	return err
}

// listCommands lists the subcommands of a command by group; those without one come last.
func listCommands(cmd *cobra.Command) string {
	if !cmd.HasAvailableSubCommands() {
		return ""
	}
	var b strings.Builder
	list := func(group, title string) {
		head := "\n\n" + title
		for _, c := range cmd.Commands() {
			if c.GroupID == group && (c.IsAvailableCommand() || c.Name() == "help") {
				fmt.Fprintf(&b, "%s\n  %-*s %s", head, c.NamePadding(), c.Name(), c.Short)
				head = ""
			}
		}
	}
	for _, g := range cmd.Groups() {
		list(g.ID, g.Title)
	}
	rest := "Available Commands:"
	if len(cmd.Groups()) > 0 {
		rest = "Additional Commands:"
	}
	list("", rest)
	return b.String()
}

// FlagUsages lists the flags of a command by group; those without one come last.
func FlagUsages(cmd *cobra.Command) string {
	var b strings.Builder
	rest := all(cmd.LocalFlags())
	for _, title := range strings.Split(cmd.Annotations[groupAnnotation], "\n") {
		var group []*pflag.Flag
		rest = slices.DeleteFunc(rest, func(f *pflag.Flag) bool {
			is := slices.Equal(f.Annotations[groupAnnotation], []string{title})
			if is {
				group = append(group, f)
			}
			return is
		})
		if len(group) > 0 {
			fmt.Fprintf(&b, "\n\n%s flags:\n%s", title, strings.TrimRight(listFlags(group), "\n"))
		}
	}
	title := "Flags"
	if b.Len() > 0 {
		title = "Other flags"
	}
	if len(rest) > 0 {
		fmt.Fprintf(&b, "\n\n%s:\n%s", title, strings.TrimRight(listFlags(rest), "\n"))
	}
	return b.String()
}

func all(set *pflag.FlagSet) (flags []*pflag.Flag) {
	set.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			flags = append(flags, f)
		}
	})
	return flags
}

// helpWidth is the width of help texts, in columns.
const helpWidth = 100

// listFlags writes each flag as "  -w, --watch DURATION   text (default 1s)", wrapped.
func listFlags(flags []*pflag.Flag) string {
	left := make([]string, len(flags))
	width := 0
	for i, f := range flags {
		left[i] = "      --" + f.Name
		if f.Shorthand != "" {
			left[i] = "  -" + f.Shorthand + ", --" + f.Name
		}
		if kind := valueType(f); kind != "" {
			left[i] += " " + kind
		}
		width = max(width, len(left[i]))
	}
	var b strings.Builder
	for i, f := range flags {
		_, text := pflag.UnquoteUsage(f)
		indent := width + 3
		fmt.Fprintf(&b, "%-*s%s\n", indent, left[i], wrap(text+defaultOf(f), max(helpWidth-indent, 30), indent))
	}
	return b.String()
}

// wrap breaks text into lines of at most width columns; all but the first are indented.
func wrap(text string, width, indent int) string {
	var b strings.Builder
	column := 0
	for _, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case column == 0:
		case column+1+n > width:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}

// valueType returns the type of a flag's value in upper case, "" for a switch.
func valueType(f *pflag.Flag) string {
	name, _ := pflag.UnquoteUsage(f)
	switch name {
	case "int", "uint", "uint16", "uint32", "uint64", "float":
		return "NUMBER"
	case "strings", "string":
		return strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
	}
	return strings.ToUpper(name)
}

// defaultOf returns " (default X)" unless the default is a zero value or in the text.
func defaultOf(f *pflag.Flag) string {
	if slices.Contains([]string{"", "0", "false", "[]", "0s"}, f.DefValue) || strings.Contains(f.Usage, "(default") {
		return ""
	}
	return " (default " + strings.Trim(f.DefValue, "[]") + ")"
}
