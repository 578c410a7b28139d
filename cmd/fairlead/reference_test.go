package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/internal/cli"
	"github.com/fairlead/fairlead/cmd/internal/clitest"
)

// TestReferencePage: docs/reference/cli.md is generated from the commands.
func TestReferencePage(t *testing.T) {
	path := filepath.Join(clitest.Repository, "docs/reference/cli.md")
	want := reference(newRootCommand())
	if *updatePages {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("%s is out of date (%v): go test ./cmd/fairlead -run TestReferencePage -update", path, err)
	}
}

// reference describes all commands, each with its help text, examples and flags.
func reference(root *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Command line\n\nThis page is generated from the commands of `%s`. A daemon also reads its flags from a YAML file (`--config`).\n", root.Name())
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Hidden || cmd.Name() == "help" {
			return
		}
		if cmd.Runnable() {
			describe(&b, cmd)
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	for _, sub := range root.Commands() {
		walk(sub)
	}
	return b.String()
}

func describe(b *strings.Builder, cmd *cobra.Command) {
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	fmt.Fprintf(b, "\n## %s\n\n```text\n%s\n```\n", cmd.CommandPath(), text)
	if cmd.Example != "" {
		fmt.Fprintf(b, "\n```sh\n%s\n```\n", strings.ReplaceAll(strings.TrimPrefix(cmd.Example, "  "), "\n  ", "\n"))
	}
	if flags := cli.FlagUsages(cmd); flags != "" {
		fmt.Fprintf(b, "\n```text\n%s\n```\n", strings.TrimSpace(flags))
	}
}
