package check

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
	"github.com/fairlead/fairlead/source/crd"
	"github.com/fairlead/fairlead/source/manifest"
	"github.com/fairlead/fairlead/source/object"
)

var update = flag.Bool("update", false, "write the expected findings")

// parseCase reads the first lines of a case: "kubernetes", "dataplane NAME", "node NAME
// KEY=VALUE" and comments.
func parseCase(t *testing.T, text string) (c Config) {
	t.Helper()
	c.DataPlanes = []string{"xdp"}
	c.Peers = noPort1
	for line := range strings.Lines(text) {
		switch words := strings.Fields(line); {
		case len(words) == 0 || words[0] == "#":
		case words[0] == "kubernetes":
			c.Cluster = true
		case words[0] == "dataplane":
			c.DataPlanes = words[1:]
		case words[0] == "node":
			n := Node{Name: words[1], Labels: map[string]string{}}
			for _, w := range words[2:] {
				k, v, _ := strings.Cut(w, "=")
				n.Labels[k] = v
			}
			c.Nodes = append(c.Nodes, n)
		default:
			t.Fatalf("unknown line %q", line)
		}
	}
	return c
}

// noPort1 stands for the agent's own check of peers.
func noPort1(of []crd.Peer) (problems []problem.Problem) {
	for _, p := range of {
		if p.Address.Port() == 1 {
			problems = append(problems, problem.Problem{Object: p.Object(), Field: "spec.port", Message: "1 is rejected by this test"})
		}
	}
	return problems
}

// corpus returns the cases by file.
func corpus(t testing.TB) map[string]*txtar.Archive {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	all := map[string]*txtar.Archive{}
	for _, path := range paths {
		if all[path], err = txtar.ParseFile(path); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

const wantFile = "want"

// TestCorpus checks the findings of every case, with file and line.
func TestCorpus(t *testing.T) {
	for path, archive := range corpus(t) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			c, dir := parseCase(t, string(archive.Comment)), t.TempDir()
			c.Paths = []string{dir}
			want := ""
			for _, f := range archive.Files {
				if f.Name == wantFile {
					want = string(f.Data)
					continue
				}
				if err := os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			found, err := Run(c)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, f := range found {
				got += string(f.Rule) + " " + strings.ReplaceAll(f.String(), dir+"/", "") + "\n"
			}
			if got == want {
				return
			}
			if !*update {
				t.Fatalf("got:\n%s\nwant:\n%s", got, want)
			}
			archive.Files = slices.DeleteFunc(archive.Files, func(f txtar.File) bool { return f.Name == wantFile })
			archive.Files = append(archive.Files, txtar.File{Name: wantFile, Data: []byte(got)})
			if err := os.WriteFile(path, txtar.Format(archive), 0o600); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestCorpusIsComplete requires a case for every rule, and for a wrong value of every
// annotation that can have one.
func TestCorpusIsComplete(t *testing.T) {
	var all strings.Builder
	for _, archive := range corpus(t) {
		for _, f := range archive.Files {
			if f.Name == wantFile {
				all.Write(f.Data)
			}
		}
	}
	for _, r := range Rules {
		if r != RuleConfig && !regexp.MustCompile("(?m)^"+regexp.QuoteMeta(string(r))+" ").MatchString(all.String()) { // cmd/fairlead tests configuration files
			t.Errorf("no case has a finding of the rule %s", r)
		}
	}
	anyValue := []string{object.AnnotationAddressSharingKey}
	for _, name := range append(object.Annotations(), object.AnnotationBackendTimestamps) {
		if !strings.Contains(all.String(), "metadata.annotations["+name+"]: ") && !slices.Contains(anyValue, name) {
			t.Errorf("no case has a finding about the annotation %s", name)
		}
	}
}

// FuzzCheck checks arbitrary manifests. Every finding has a message and, except about a
// whole file, a line.
func FuzzCheck(f *testing.F) {
	for _, archive := range corpus(f) {
		for _, file := range archive.Files {
			f.Add(strings.Contains(string(archive.Comment), "kubernetes"), file.Data)
		}
	}
	stories, _ := filepath.Glob("../../source/manifest/testdata/*.txtar") // those of the manifest fuzzers
	for _, path := range stories {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range archive.Files {
			f.Add(false, file.Data)
		}
	}
	f.Fuzz(func(t *testing.T, cluster bool, text []byte) {
		fuzzlimit.Time(t)
		found, err := Run(Config{
			Reading:    manifest.Reading{Paths: []string{manifest.Stdin}, Stdin: text, Cluster: cluster},
			DataPlanes: []string{"xdp", "ipvs"}, Peers: noPort1,
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range found {
			if file, line := one.Position(); file != "stdin" || line < 1 || one.Message == "" || one.Rule == "" {
				t.Errorf("%+v: want a line of the file, a rule and a message", one)
			}
		}
	})
}

// TestPaths checks how files, folders and standard input form one configuration.
func TestPaths(t *testing.T) {
	dir := t.TempDir()
	service, slice, _ := strings.Cut(base, "---\n")
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a/web.yaml", service)
	write("b/slice.yaml", slice)
	write("b/below/more.yaml", slice)
	write("b/web.txt", slice)
	write("empty/note.txt", "")
	if err := os.Symlink("nowhere", filepath.Join(dir, "b/link.yaml")); err != nil {
		t.Fatal(err)
	}
	check := func(stdin string, paths ...string) string {
		t.Helper()
		c := Config{DataPlanes: []string{"xdp"}}
		c.Stdin = []byte(stdin)
		for _, p := range paths {
			if p != manifest.Stdin {
				p = filepath.Join(dir, p)
			}
			c.Paths = append(c.Paths, p)
		}
		found, err := Run(c)
		if err != nil {
			return strings.ReplaceAll(err.Error(), dir+"/", "")
		}
		got := ""
		for _, f := range found {
			got += strings.ReplaceAll(f.String(), dir+"/", "") + "\n"
		}
		return got
	}
	for _, c := range []struct{ got, want string }{
		{check("", "a/web.yaml", "b/slice.yaml"), ""},
		{check("", "a", "b/slice.yaml", "a/../a/web.yaml"), ""},
		{check(slice, "a", "-"), ""},
		{check("", "a", "b"), "b/below: error: is a folder, whose files are not read; put them into b\n" +
			"b/link.yaml: error: cannot be read: it is a symbolic link to nowhere, which leads to no file\n"},
		{check("", "a", "b/web.txt"), "b/web.txt: error: is not read from a folder: want a name that ends in .yaml, .yml or .json, and does not begin with a dot\n"},
		{check("", "nowhere"), "stat nowhere: no such file or directory"},
		{check("", "empty"), "empty: no manifests in this folder: files whose names end in .yaml, .yml or .json"},
		{check("a", "-"), "stdin:1: error: want an object with apiVersion and kind, got the text \"a\"\n"},
	} {
		if c.got != c.want {
			t.Errorf("got  %q\nwant %q", c.got, c.want)
		}
	}
}

const base = `apiVersion: v1
kind: Service
metadata:
  name: web
  annotations: {fairlead.io/addresses: 10.1.1.1}
spec:
  type: LoadBalancer
  ports: [{port: 80}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: web-1
  labels: {kubernetes.io/service-name: web}
addressType: IPv4
ports: [{port: 80}]
endpoints: [{addresses: [172.16.1.2]}]
`
