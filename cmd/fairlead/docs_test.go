package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/service"
	"github.com/fairlead/fairlead/source"
	"github.com/fairlead/fairlead/source/manifest"
	"github.com/fairlead/fairlead/source/object"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/file"
)

const root = "../.."

// pages gives every page for people, by its path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	paths := []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d os.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" {
			rel, err := filepath.Rel(root, path)
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
		b, err := os.ReadFile(filepath.Join(root, p))
		if err != nil {
			t.Fatal(err)
		}
		text[p] = string(b)
	}
	return text
}

// snippet is a fenced block of a page.
type snippet struct {
	language, text string
	line           int // where its text begins
}

func snippets(page string) []snippet {
	var all []snippet
	var open *snippet
	for i, line := range strings.Split(page, "\n") {
		language, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && open == nil:
			open = &snippet{language: language, line: i + 2}
		case fence:
			all, open = append(all, *open), nil
		case open != nil:
			open.text += line + "\n"
		}
	}
	return all
}

// TestCommandsInThePagesAreRight: what a page tells people to type must be
// something that make or fairlead takes.
func TestCommandsInThePagesAreRight(t *testing.T) {
	checked := 0
	for page, text := range pages(t) {
		for _, s := range snippets(text) {
			switch s.language {
			case "sh", "console":
			case "yaml", "json", "text", "go":
				continue
			default:
				t.Errorf("%s:%d: a fence of %q: use sh, yaml, json, go or text, so that it can be checked", page, s.line-1, s.language)
				continue
			}
			for i, line := range strings.Split(strings.TrimSpace(s.text), "\n") {
				checked++
				if err := checkLine(line); err != nil {
					t.Errorf("%s:%d: %s: %v", page, s.line+i, line, err)
				}
			}
		}
	}
	if checked == 0 {
		t.Error("no page has a command")
	}
}

// TestExamplesInTheHelpAreRight: every command has examples, and takes them.
func TestExamplesInTheHelpAreRight(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Runnable() && cmd.Example == "" {
			t.Errorf("%s has no examples", cmd.CommandPath())
		}
		for line := range strings.Lines(cmd.Example) {
			if err := checkLine(strings.TrimSpace(line)); err != nil {
				t.Errorf("%s: %s: %v", cmd.CommandPath(), strings.TrimSpace(line), err)
			}
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRootCommand())
}

// TestWrongCommandsAreFound keeps the checks above honest.
func TestWrongCommandsAreFound(t *testing.T) {
	for _, line := range []string{
		"make tset", "fairlead satus", "fairlead status --nosuch", "fairlead status extra", "fairlead services -o xml",
		"fairlead completion tcsh", "fairlead", "ip route", "kubectl apply -f deploy/nosuch.yaml", "kubectl aply -f deploy", "kubectl fairlead satus", "fairlead agent --nosuch", "fairlead router extra", "fairlead status --watch 1s", `make demo ARGS="--method`,
	} {
		if checkLine(line) == nil {
			t.Errorf("%s passes", line)
		}
	}
}

// TestLinksInThePagesLead to files that are there.
func TestLinksInThePagesLead(t *testing.T) {
	for page, text := range pages(t) {
		for _, m := range regexp.MustCompile(`\]\(([^)#:]+)\)`).FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}

// TestArchitectureNamesEveryFolder: the map has a line for each.
func TestArchitectureNamesEveryFolder(t *testing.T) {
	page := pages(t)["ARCHITECTURE.md"]
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	built := []string{"bin", "out", ".git", "LICENSES"}
	for _, e := range entries {
		if e.IsDir() && !slices.Contains(built, e.Name()) && !strings.Contains(page, "`"+e.Name()+"/") {
			t.Errorf("ARCHITECTURE.md has no line for %s/", e.Name())
		}
	}
}

// checkLine says what is wrong with a command line, up to a pipe or a
// redirection.
func checkLine(line string) error {
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
	switch words[0] {
	case "make":
		return checkMake(words[1:])
	case "fairlead", "bin/fairlead":
		return checkFairlead(words[1:])
	case "kubectl", "helm":
		return checkCluster(words[1:])
	}
	return fmt.Errorf("%s: neither make nor fairlead: nothing checks it", words[0])
}

// checkCluster checks what is Fairlead's of a line for kubectl or helm: the
// plug-in's command, and that files are there.
func checkCluster(words []string) error {
	if len(words) > 0 && words[0] == "fairlead" {
		words = words[1:]
		for len(words) > 1 && strings.HasPrefix(words[0], "-") { // the plug-in's own, which all have a value
			words = words[2:]
		}
		return checkFairlead(words)
	}
	verbs := []string{"apply", "cordon", "create", "delete", "describe", "explain", "get", "install", "rollout", "scale", "taint", "uncordon", "uninstall", "upgrade"}
	if !slices.ContainsFunc(words, func(w string) bool { return slices.Contains(verbs, w) }) {
		return fmt.Errorf("none of %s", verbs)
	}
	for _, w := range words {
		if strings.HasPrefix(w, "deploy/") {
			if _, err := os.Stat(filepath.Join(root, w)); err != nil {
				return err
			}
		}
	}
	return nil
}

// split gives a line's words as a shell would, for the little that pages use.
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

func checkMake(words []string) error {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		return err
	}
	for _, w := range words {
		if args, ok := strings.CutPrefix(w, "ARGS="); ok && slices.Contains(words, "demo") {
			if err := checkFairlead(append([]string{"demo"}, strings.Fields(args)...)); err != nil {
				return err
			}
		} else if name, _, ok := strings.Cut(w, "="); ok {
			if !strings.Contains(string(makefile), "$("+name+")") {
				return fmt.Errorf("the Makefile has no variable %s", name)
			}
		} else if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(w) + `:`).Match(makefile) {
			return fmt.Errorf("make has no target %s", w)
		}
	}
	return nil
}

// checkFairlead parses as fairlead does, but runs nothing.
func checkFairlead(args []string) error {
	cmd, rest, err := newRootCommand().Find(args)
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

// TestManifestsInThePagesAreRight: what a page shows as a manifest is taken
// without a word, and is a Service with servers.
func TestManifestsInThePagesAreRight(t *testing.T) {
	checked, senders := 0, 0
	for page, text := range pages(t) {
		for _, s := range snippets(text) {
			// What is for a cluster, where Kubernetes writes the slices, is
			// checked with its types: in kube.
			if s.language != "yaml" || !strings.Contains(s.text, "kind: EndpointSlice") {
				continue
			}
			checked++
			check := checkManifest
			if strings.Contains(s.text, "fairlead.io/balancers:") {
				check, senders = checkBalancers, senders+1
			}
			if err := check(s.text); err != nil {
				t.Errorf("%s:%d: %v", page, s.line, err)
			}
		}
	}
	if checked == 0 || senders == 0 {
		t.Errorf("the pages show %d manifests, %d of them with load balancers", checked, senders)
	}
	if wrong := "apiVersion: v1\nkind: Servcie\n"; checkManifest(wrong) == nil || checkBalancers(wrong) == nil {
		t.Error("a wrong manifest passes")
	}
}

// TestServicesPageIsWhole: it names every annotation, and every value of those
// that have a few.
func TestServicesPageIsWhole(t *testing.T) {
	page := pages(t)["docs/services.md"]
	words := []string{object.AnnotationSince}
	words = append(words, object.Annotations()...)
	for _, values := range [][]string{
		asText(service.Methods), asText(service.Encapsulations), asText(service.Schedulers), asText(service.Survivals), asText(service.Checks),
	} {
		words = append(words, values...)
	}
	for _, w := range words {
		if !strings.Contains(page, "`"+w+"`") {
			t.Errorf("docs/services.md does not name %s", w)
		}
	}
}

func asText[T ~string](values []T) (out []string) {
	for _, v := range values {
		out = append(out, string(v))
	}
	return out
}

// TestRoutingInThePagesIsRight: peers and announcements are read from a folder as
// they stand on their pages.
func TestRoutingInThePagesIsRight(t *testing.T) {
	for _, page := range []string{"docs/bgp.md", "docs/layer2.md"} {
		checked := 0
		for _, s := range snippets(pages(t)[page]) {
			if s.language != "yaml" || !strings.Contains(s.text, "apiVersion: fairlead.io/") {
				continue
			}
			checked++
			for _, p := range manifest.Read("page.yaml", []byte(s.text)).Problems {
				if strings.Contains(p.Message, "is of a cluster only") {
					continue // what else were wrong with it would be told, too
				}
				t.Errorf("%s:%d: %s", page, s.line, p)
			}
		}
		if checked == 0 {
			t.Errorf("%s shows neither peer nor announcement", page)
		}
	}
}

// checkManifest reads a manifest as an agent does.
func checkManifest(text string) error {
	got := manifest.Read("page.yaml", []byte(text))
	switch {
	case len(got.Problems) > 0:
		return fmt.Errorf("%s", got.Problems[0])
	case len(got.Services) == 0:
		return fmt.Errorf("no Service in it")
	}
	for _, svc := range got.Services {
		for _, f := range svc.Frontends {
			if len(f.Backends) == 0 {
				return fmt.Errorf("%s %s has no servers", svc.ID, f.Key)
			}
		}
	}
	return nil
}

// checkBalancers reads a manifest as an agent does that accepts packets from the load
// balancers in it.
func checkBalancers(text string) error {
	dir, err := os.MkdirTemp("", "page")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "page.yaml"), []byte(text), 0o600); err != nil {
		return err
	}
	folder := manifest.New(dir, slog.New(slog.DiscardHandler))
	folder.AcceptFrom([]source.Selector{{Namespace: "lb", Label: "fairlead.io/balancers", Value: "true"}})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var got source.Snapshot
	if err := folder.Run(ctx, func(s source.Snapshot) { got = s; stop() }); err != nil && ctx.Err() == nil {
		return err
	}
	switch {
	case len(got.Problems) > 0:
		return fmt.Errorf("%s", got.Problems[0])
	case len(got.Senders) == 0:
		return fmt.Errorf("no load balancers in it")
	}
	return nil
}

// TestNetworksInThePagesAreRight: networks, peers and requests of virtually
// dedicated networks are read as the controller does.
func TestNetworksInThePagesAreRight(t *testing.T) {
	page, checked := pages(t)["docs/vdn.md"], 0
	for _, s := range snippets(page) {
		var err error
		switch s.language {
		case "yaml":
			_, err = file.Read("page.yaml", []byte(s.text))
		case "json":
			var r vdn.AttachmentRequest
			err = errors.Join(vdn.Decode([]byte(s.text), &r), r.Validate())
		default:
			continue
		}
		checked++
		if err != nil {
			t.Errorf("docs/vdn.md:%d: %v", s.line, err)
		}
	}
	if checked < 3 {
		t.Errorf("docs/vdn.md shows %d files and requests", checked)
	}
	for f := range reflect.TypeFor[vdn.Network]().Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); !strings.Contains(page, "`"+name+"`") {
			t.Errorf("docs/vdn.md does not name %s", name)
		}
	}
}
