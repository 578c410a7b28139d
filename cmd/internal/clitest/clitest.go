// Package clitest checks the command lines that docs and help texts show
// against the commands of the programs. Only tests import it.
package clitest

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Repository is the root of the repository, relative to the directory of a command.
const Repository = "../.."

// Pages returns the text of every documentation page by its path.
func Pages(t *testing.T) map[string]string {
	t.Helper()
	paths := []string{"README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"}
	err := filepath.WalkDir(filepath.Join(Repository, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" {
			rel, err := filepath.Rel(Repository, path)
			paths = append(paths, rel)
			return err
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	text := map[string]string{}
	for _, p := range paths {
		b, err := os.ReadFile(filepath.Join(Repository, p))
		if err != nil {
			t.Fatal(err)
		}
		text[p] = string(b)
	}
	return text
}

// Snippet is a fenced block of a page.
type Snippet struct {
	Language, Text string
	Line           int // in the page, where the text begins
}

// Snippets returns the fenced blocks of a page.
func Snippets(page string) []Snippet {
	var all []Snippet
	var open *Snippet
	for i, line := range strings.Split(page, "\n") {
		language, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && open == nil:
			open = &Snippet{Language: language, Line: i + 2}
		case fence:
			all, open = append(all, *open), nil
		case open != nil:
			open.Text += line + "\n"
		}
	}
	return all
}

// programs lists our programs: each is checked by the tests of its own command.
var programs = []string{"fairlead", "fairlead-lab"}

// Program is one of our programs, whose command lines are checked.
type Program struct {
	Name string
	// New returns its root command.
	New func() *cobra.Command
}

// CheckPages checks every command line of the pages that uses this program, and that
// every other one uses something that is checked elsewhere.
func (p Program) CheckPages(t *testing.T) {
	own := 0
	for page, text := range Pages(t) {
		for _, s := range Snippets(text) {
			switch s.Language {
			case "sh", "console":
			case "yaml", "json", "text", "go":
				continue
			default:
				t.Errorf("%s:%d: a fence of %q: use sh, yaml, json, go or text, so that it can be checked", page, s.Line-1, s.Language)
				continue
			}
			for i, line := range strings.Split(strings.TrimSpace(s.Text), "\n") {
				if strings.HasPrefix(line, p.Name+" ") {
					own++
				}
				if err := p.CheckLine(line); err != nil {
					t.Errorf("%s:%d: %s: %v", page, s.Line+i, line, err)
				}
			}
		}
	}
	if own == 0 {
		t.Errorf("no page has a command line of %s", p.Name)
	}
}

// CheckExamples checks that every command has examples, and accepts them.
func (p Program) CheckExamples(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Runnable() && cmd.Example == "" {
			t.Errorf("%s has no examples", cmd.CommandPath())
		}
		for line := range strings.Lines(cmd.Example) {
			if err := p.CheckLine(strings.TrimSpace(line)); err != nil {
				t.Errorf("%s: %s: %v", cmd.CommandPath(), strings.TrimSpace(line), err)
			}
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(p.New())
}

// CheckLine reports what is wrong with a command line, up to a pipe or a
// redirection.
func (p Program) CheckLine(line string) error {
	if line == "" || strings.HasPrefix(line, "#") {
		return nil
	}
	words, err := split(line)
	if err != nil {
		return err
	}
	if words[0] == "sudo" {
		words = words[1:]
	}
	switch name := strings.TrimPrefix(words[0], "bin/"); {
	case name == p.Name:
		return p.CheckArgs(words[1:])
	case slices.Contains(programs, name):
		return nil // checked by its own tests
	case name == "make":
		return p.checkMake(words[1:])
	case name == "kubectl" || name == "helm":
		return p.checkCluster(words[1:])
	}
	return fmt.Errorf("%s: neither make nor a program of ours: nothing checks it", words[0])
}

// CheckArgs parses arguments as the program does, but runs nothing.
func (p Program) CheckArgs(args []string) error {
	cmd, rest, err := p.New().Find(args)
	if err != nil {
		return err
	}
	if !cmd.Runnable() {
		return fmt.Errorf("%s does nothing by itself", cmd.CommandPath())
	}
	cmd.SetOut(io.Discard)
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if err := cmd.ValidateRequiredFlags(); err != nil {
		return err
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

// checkCluster checks the parts of a kubectl or helm command line that concern Fairlead:
// the plugin's command, and that files exist.
func (p Program) checkCluster(words []string) error {
	if len(words) > 0 && words[0] == "fairlead" {
		words = words[1:]
		for len(words) > 1 && strings.HasPrefix(words[0], "-") { // the plugin's own flags, which all have a value
			words = words[2:]
		}
		if p.Name != "fairlead" {
			return nil
		}
		return p.CheckArgs(words)
	}
	verbs := []string{"apply", "cordon", "create", "delete", "describe", "explain", "get", "install", "rollout", "scale", "taint", "uncordon", "uninstall", "upgrade"}
	if !slices.ContainsFunc(words, func(w string) bool { return slices.Contains(verbs, w) }) {
		return fmt.Errorf("none of %s", verbs)
	}
	for _, w := range words {
		if strings.HasPrefix(w, "deploy/") {
			if _, err := os.Stat(filepath.Join(Repository, w)); err != nil {
				return err
			}
		}
	}
	return nil
}

// split returns a line's words as a shell would, for the little that pages use.
func split(line string) ([]string, error) {
	if cut := regexp.MustCompile(`\s[|>]`).FindStringIndex(line); cut != nil {
		line = line[:cut[0]]
	}
	var words []string
	for _, w := range regexp.MustCompile(`[^\s"']*("[^"]*"|'[^']*')|\S+`).FindAllString(line, -1) {
		if strings.Count(w, `"`)%2 == 1 || strings.Count(w, "'")%2 == 1 {
			return nil, fmt.Errorf("a quote that does not end")
		}
		words = append(words, strings.NewReplacer(`"`, "", "'", "").Replace(w))
	}
	return words, nil
}

func (p Program) checkMake(words []string) error {
	makefile, err := os.ReadFile(filepath.Join(Repository, "Makefile"))
	if err != nil {
		return err
	}
	for _, w := range words {
		name, args, assigns := strings.Cut(w, "=")
		switch {
		case assigns && name == "ARGS" && slices.Contains(words, "demo"):
			if p.Name == "fairlead-lab" {
				if err := p.CheckArgs(append([]string{"demo"}, strings.Fields(args)...)); err != nil {
					return err
				}
			}
		case assigns && !strings.Contains(string(makefile), "$("+name+")"):
			return fmt.Errorf("the Makefile has no variable %s", name)
		case !assigns && !regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(w)+`:`).Match(makefile):
			return fmt.Errorf("make has no target %s", w)
		}
	}
	return nil
}
