package importer_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/source/importer"
	"github.com/fairlead/fairlead/source/importer/ipvsadm"
	"github.com/fairlead/fairlead/source/importer/keepalived"
	"github.com/fairlead/fairlead/source/importer/metallb"
	"github.com/fairlead/fairlead/source/manifest"
)

var update = flag.Bool("update", false, "write what comes out into the stories of testdata")

// TestStories runs txtar archives. The text before the files is the format, then flags such
// as "mark=1=10.1.1.1:80" and "config-id=NAME". The files are the input, the first of them
// the one that is named, and the expected results: "manifests", the YAML with its losses,
// or "error"; and "held", what an agent programs if all servers are healthy.
func TestStories(t *testing.T) {
	testkit.Stories(t, story)
}

func story(t *testing.T, path string) {
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var inputs []txtar.File
	want := map[string]string{}
	for _, f := range archive.Files {
		if slices.Contains([]string{"manifests", "held", "error"}, f.Name) {
			want[f.Name] = string(f.Data)
		} else {
			inputs = append(inputs, f)
		}
	}
	got := map[string]string{}
	r, err := read(strings.Fields(string(archive.Comment)), inputs)
	if err != nil {
		got["error"] = err.Error() + "\n"
	} else {
		checkResult(t, r)
		if strings.Contains(string(r.YAML()), secret) {
			t.Error("a password came through")
		}
		got["manifests"], got["held"] = string(r.YAML()), held(t, r)
	}
	for _, name := range []string{"manifests", "held", "error"} {
		if got[name] != want[name] && !*update {
			t.Errorf("%s: got:\n%s\nwant:\n%s\n(go test ./source/importer -update writes it again)", name, got[name], want[name])
		}
		if got[name] != "" {
			inputs = append(inputs, txtar.File{Name: name, Data: []byte(got[name])})
		}
	}
	if *update {
		archive.Files = inputs
		if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// secret is the password in all test cases.
const secret = "open-sesame"

func read(words []string, inputs []txtar.File) (*importer.Result, error) {
	marks, id := importer.Marks{}, ""
	for _, w := range words[1:] {
		if mark, ok := strings.CutPrefix(w, "mark="); ok {
			if err := marks.Set(mark); err != nil {
				return nil, err
			}
		} else if name, ok := strings.CutPrefix(w, "config-id="); ok {
			id = name
		} else {
			return nil, fmt.Errorf("%q is no word of a story", w)
		}
	}
	switch words[0] {
	case "keepalived":
		include := func(from, pattern string) (files []keepalived.File, err error) {
			for _, f := range inputs {
				if match, _ := filepath.Match(filepath.Join(filepath.Dir(from), pattern), f.Name); match {
					files = append(files, keepalived.File{Name: f.Name, Text: f.Data})
				}
			}
			return files, nil
		}
		return keepalived.Read(keepalived.File{Name: inputs[0].Name, Text: inputs[0].Data},
			keepalived.Options{Marks: marks, ConfigID: id, Include: include})
	case "ipvsadm":
		return ipvsadm.Read(inputs[0].Name, inputs[0].Data, marks)
	case "metallb":
		var files []metallb.File
		for _, f := range inputs {
			files = append(files, metallb.File{Name: f.Name, Text: f.Data})
		}
		return metallb.Read(files)
	}
	return nil, fmt.Errorf("%q is no format", words[0])
}

// checkResult checks the invariants of every result: an agent accepts all of it, from one
// text as from separate files, and each loss is complete.
func checkResult(t *testing.T, r *importer.Result) {
	t.Helper()
	all := manifest.Read("all.yaml", r.YAML())
	if len(all.Services) != len(r.Manifests) {
		t.Errorf("%d manifests, of which an agent reads %d Services: %v\n%s", len(r.Manifests), len(all.Services), all.Problems, r.YAML())
	}
	names := map[string]bool{}
	for _, m := range r.Manifests {
		if taken, losses := m.Check(); !taken || names[m.Name] {
			t.Errorf("%s: not taken, or there twice: %v", m.Name, losses)
		}
		names[m.Name] = true
		if one := manifest.Read("one.yaml", r.File(m)); len(one.Services) != 1 {
			t.Errorf("%s: the file for itself has %d Services", m.Name, len(one.Services))
		}
	}
	if len(all.Problems) > 0 && len(r.Routing) > 0 && len(r.Manifests) == 0 {
		t.Errorf("problems %v", all.Problems)
	}
	for _, m := range r.Routing {
		if taken, losses := m.CheckRouting(); !taken || names[m.Name] {
			t.Errorf("%s: not taken, or there twice: %v", m.Name, losses)
		}
		names[m.Name] = true
	}
	for _, l := range r.Losses {
		if l.File == "" || l.Line < 1 || l.What == "" || l.Why == "" {
			t.Errorf("%+v lacks something", l)
		}
	}
	text, err := r.JSON()
	var back struct {
		Manifests []struct{ Objects []struct{ Kind string } }
		Routing   []struct{ Objects []struct{ Kind string } }
		Losses    []importer.Loss
	}
	if err == nil {
		err = json.Unmarshal(text, &back)
	}
	if err != nil || len(back.Manifests) != len(r.Manifests) || len(back.Routing) != len(r.Routing) || len(back.Losses) != len(r.Losses) {
		t.Errorf("JSON: %v\n%s", err, text)
	}
	for _, m := range back.Manifests {
		if m.Objects[0].Kind != "Service" {
			t.Errorf("JSON: %+v begins with no Service", m)
		}
	}
}

// held programs manifests into a data plane through the plan, and describes the result.
func held(t *testing.T, r *importer.Result) string {
	t.Helper()
	snapshot := manifest.Read("all.yaml", r.YAML())
	in := plan.Input{
		Services: snapshot.Services, Health: func(health.Target) health.State { return health.Up },
		Node: plan.Node{Name: "lb1", NextHop4: netip.MustParseAddr("10.0.0.105"), NextHop6: netip.MustParseAddr("2001:db8::105")},
	}
	if snapshot.Advertisements != nil {
		in.Announce = snapshot.Advertisements.Offers
	}
	p := plan.Build(in)
	plane := fake.New()
	var b strings.Builder
	for _, f := range p.Frontends {
		if f.Want == nil {
			fmt.Fprintf(&b, "%s %s: %s\n", f.Key, f.State, f.Reason)
			continue
		}
		if err := plane.Upsert(*f.Want); err != nil && !errors.Is(err, dataplane.ErrUnsupported) {
			t.Errorf("%s: %v", f.Key, err)
		}
	}
	frontends, err := plane.List()
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(frontends, func(a, b desired.Frontend) int { return a.Key.Compare(b.Key) })
	for _, f := range frontends {
		fmt.Fprintf(&b, "%s %s %s %s", f.Key, strings.TrimSpace(string(f.Method)+" "+string(f.Encapsulation)), f.Scheduler, f.Survival)
		if f.Affinity > 0 {
			fmt.Fprintf(&b, " affinity %s", f.Affinity)
		}
		b.WriteString(":")
		for _, s := range f.Backends {
			fmt.Fprintf(&b, " %s*%d", s.Addr, s.Weight)
			if s.MaxConns > 0 {
				fmt.Fprintf(&b, "<%d", s.MaxConns)
			}
		}
		b.WriteString("\n")
	}
	for _, route := range p.Routes {
		fmt.Fprintf(&b, "route %s", route.Prefix)
		if as := route.Attributes.String(); as != "" {
			fmt.Fprintf(&b, " (%s)", as)
		}
		b.WriteString("\n")
	}
	for _, no := range p.Refusals {
		fmt.Fprintf(&b, "no route %s: %s\n", no.Prefix, no.Reason)
	}
	for _, problem := range snapshot.Problems {
		fmt.Fprintf(&b, "! %s\n", problem)
	}
	return b.String()
}
