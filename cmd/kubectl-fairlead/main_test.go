package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCommandsInThePagesAreRight checks that the plugin accepts the commands in the
// pages. What follows its own flags is checked by cmd/fairlead.
func TestCommandsInThePagesAreRight(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(newCommand().Example, "\n")
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.Split(string(text), "\n")...)
	}
	checked := 0
	for _, line := range lines {
		if args, found := strings.CutPrefix(strings.TrimSpace(line), "kubectl fairlead "); found {
			checked++
			if err := parse(args); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
	}
	if checked < 4 {
		t.Errorf("%d commands found", checked)
	}
	for _, wrong := range []string{"", "--nod n1 status", "--node n1"} {
		if parse(wrong) == nil {
			t.Errorf("kubectl fairlead %s passes", wrong)
		}
	}
}

func parse(args string) error {
	cmd := newCommand()
	if err := cmd.ParseFlags(strings.Fields(args)); err != nil {
		return err
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

// TestUI finds the subcommand after flags of the plugin; other commands are run in pods.
func TestUI(t *testing.T) {
	for args, want := range map[string]string{
		"-n lb ui --listen 127.0.0.1:9000": "ui", "ui": "ui", "-n lb status": "kubectl-fairlead", "get services ui": "kubectl-fairlead",
	} {
		if cmd, _, err := newCommand().Traverse(strings.Fields(args)); err != nil || cmd.Name() != want {
			t.Errorf("%s: command %s, %v", args, cmd.Name(), err)
		}
	}
}
