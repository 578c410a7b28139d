package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/check"
	"github.com/fairlead/fairlead/cmd/internal/cli"
	"github.com/fairlead/fairlead/cmd/internal/clitest"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/source"
	"github.com/fairlead/fairlead/source/manifest"
	"github.com/fairlead/fairlead/source/object"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/file"
)

// program is the program whose command lines in pages, help texts and manifests are
// checked.
var program = clitest.Program{Name: "fairlead", New: newRootCommand}

// TestCommandsInThePagesAreRight checks that every command in a page is valid for make or
// fairlead.
func TestCommandsInThePagesAreRight(t *testing.T) { program.CheckPages(t) }

func TestExamplesInTheHelpAreRight(t *testing.T) { program.CheckExamples(t) }

// TestWrongCommandsAreFound checks that the checks above can fail.
func TestWrongCommandsAreFound(t *testing.T) {
	for _, line := range []string{
		"make tset", "fairlead demo", "fairlead satus", "fairlead status --nosuch", "fairlead status extra", "fairlead get services -o xml",
		"fairlead completion tcsh", "fairlead", "ip route", "kubectl apply -f deploy/nosuch.yaml", "kubectl aply -f deploy", "kubectl fairlead satus", "fairlead agent --nosuch", "fairlead router extra", "fairlead status --watch 1s",
	} {
		if program.CheckLine(line) == nil {
			t.Errorf("%s passes", line)
		}
	}
}

// TestLinksInThePagesLead checks that links lead to files and headings that exist.
func TestLinksInThePagesLead(t *testing.T) {
	pages := clitest.Pages(t)
	for page, text := range pages {
		for _, m := range regexp.MustCompile(`\]\(([^)#:]*)(#[^)]*)?\)`).FindAllStringSubmatch(text, -1) {
			to := page
			if m[1] != "" {
				to = filepath.Join(filepath.Dir(page), m[1])
			}
			if _, err := os.Stat(filepath.Join(clitest.Repository, to)); err != nil {
				t.Errorf("%s: %v", page, err)
			}
			if m[2] != "" && !slices.Contains(anchors(pages[to]), m[2]) {
				t.Errorf("%s: %s has no heading for %s", page, to, m[2])
			}
		}
	}
	if got := anchors("# `nat`, or not?\n```sh\n# no heading\n```\n## A-b c\n"); !slices.Equal(got, []string{"#nat-or-not", "#a-b-c"}) {
		t.Errorf("anchors %q", got)
	}
}

// anchors returns the fragments by which GitHub links to the headings of a page.
func anchors(page string) (all []string) {
	fenced := false
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if title := strings.TrimLeft(line, "#"); title != line && !fenced {
			title = strings.ToLower(strings.TrimSpace(title))
			title = regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(title, "")
			all = append(all, "#"+strings.ReplaceAll(title, " ", "-"))
		}
	}
	return all
}

// TestArchitectureNamesEveryFolder checks that the map has a line for each folder.
func TestArchitectureNamesEveryFolder(t *testing.T) {
	page := clitest.Pages(t)["ARCHITECTURE.md"]
	entries, err := os.ReadDir(clitest.Repository)
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

// TestManifestsInThePagesAreRight checks that manifests in pages are accepted without
// problems and define a Service with backends.
func TestManifestsInThePagesAreRight(t *testing.T) {
	checked, senders := 0, 0
	for page, text := range clitest.Pages(t) {
		for _, s := range clitest.Snippets(text) {
			// Manifests for a cluster, in which Kubernetes writes the EndpointSlices, are
			// checked with their types in package kube.
			if s.Language != "yaml" || !strings.Contains(s.Text, "kind: EndpointSlice") {
				continue
			}
			checked++
			if strings.Contains(s.Text, "loadBalancer:") {
				t.Errorf("%s:%d: sets a VIP by status.loadBalancer: use the annotation %s, as all pages do", page, s.Line, object.AnnotationAddresses)
			}
			check := checkManifest
			if strings.Contains(s.Text, "fairlead.io/balancers:") {
				check, senders = checkBalancers, senders+1
			}
			if err := check(s.Text); err != nil {
				t.Errorf("%s:%d: %v", page, s.Line, err)
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

// TestManifestsInThePagesPassCheck runs `fairlead check` on every manifest of the pages and of
// the example scenarios.
func TestManifestsInThePagesPassCheck(t *testing.T) {
	dir, checked := t.TempDir(), 0
	run := func(where, text string) {
		checked++
		file := filepath.Join(dir, "page.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		args := []string{"check", file}
		if !strings.Contains(text, "kind: EndpointSlice") {
			args = append(args, "--kubernetes")
		}
		var out strings.Builder
		root := newRootCommand()
		root.SetOut(&out)
		root.SetErr(&out)
		if code := cli.Run(t.Context(), root, args); code != cli.ExitGood || out.Len() > 0 {
			t.Errorf("%s: exit code %d\n%s", where, code, &out)
		}
	}
	for page, text := range clitest.Pages(t) {
		for _, s := range clitest.Snippets(text) {
			if s.Language == "yaml" && strings.Contains(s.Text, "apiVersion:") && !strings.Contains(s.Text, "fairlead.io/balancers:") {
				run(fmt.Sprintf("%s:%d", page, s.Line), s.Text)
			}
		}
	}
	examples, _ := filepath.Glob(filepath.Join(clitest.Repository, "docs/scenarios/demo/*.yaml"))
	for _, path := range examples {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		run(path, string(text))
	}
	if checked < 10 {
		t.Errorf("only %d manifests", checked)
	}
}

// TestCheckPageIsWhole checks that the page lists every rule.
func TestCheckPageIsWhole(t *testing.T) {
	page := clitest.Pages(t)["docs/check.md"]
	for _, r := range check.Rules {
		if !strings.Contains(page, "| `"+string(r)+"` |") {
			t.Errorf("docs/check.md has no row for %s", r)
		}
	}
}

// TestServicesPageIsWhole checks that the page lists every annotation, and every value of
// enumerations.
func TestServicesPageIsWhole(t *testing.T) {
	page := clitest.Pages(t)["docs/services.md"]
	words := []string{object.AnnotationBackendTimestamps}
	words = append(words, object.Annotations()...)
	for _, values := range [][]string{
		cli.Texts(service.Methods), cli.Texts(service.Encapsulations), cli.Texts(service.Schedulers), cli.Texts(service.Survivals), cli.Texts(service.Checks),
	} {
		words = append(words, values...)
	}
	for _, w := range words {
		if !strings.Contains(page, "`"+w+"`") {
			t.Errorf("docs/services.md does not name %s", w)
		}
	}
}

// TestRoutingInThePagesIsRight reads the peers and advertisements on pages from a
// manifest directory.
func TestRoutingInThePagesIsRight(t *testing.T) {
	for _, page := range []string{"docs/bgp.md", "docs/layer2.md"} {
		checked := 0
		for _, s := range clitest.Snippets(clitest.Pages(t)[page]) {
			if s.Language != "yaml" || !strings.Contains(s.Text, "apiVersion: fairlead.io/") {
				continue
			}
			checked++
			for _, p := range manifest.Read("page.yaml", []byte(s.Text)).Problems {
				if strings.Contains(p.Message, "is of a cluster only") {
					continue // any other error would be reported, too
				}
				t.Errorf("%s:%d: %s", page, s.Line, p)
			}
		}
		if checked == 0 {
			t.Errorf("%s shows neither peer nor advertisement", page)
		}
	}
}

// checkManifest reads a manifest like an agent.
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

// checkBalancers reads a manifest like an agent that accepts packets from the load
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

// TestNetworksInThePagesAreRight reads networks, peers and requests of virtually
// dedicated networks like the controller.
func TestNetworksInThePagesAreRight(t *testing.T) {
	page, checked := clitest.Pages(t)["docs/vdn.md"], 0
	for _, s := range clitest.Snippets(page) {
		var err error
		switch s.Language {
		case "yaml":
			_, err = file.Read("page.yaml", []byte(s.Text))
		case "json":
			var r vdn.AttachmentRequest
			err = errors.Join(vdn.Decode([]byte(s.Text), &r), r.Validate())
		default:
			continue
		}
		checked++
		if err != nil {
			t.Errorf("docs/vdn.md:%d: %v", s.Line, err)
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
