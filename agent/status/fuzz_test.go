package status

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/agent/socket"
	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
)

// FuzzStatus has an agent send arbitrary answers. Whatever can be decoded is shown in
// every format: a table contains no control characters, JSON decodes to the same status,
// and YAML is equivalent to JSON.
func FuzzStatus(f *testing.F) {
	seeds, err := filepath.Glob("testdata/*-status.json")
	if err != nil || len(seeds) == 0 {
		f.Fatal("no status to begin with")
	}
	for _, name := range seeds {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"services":[null,{"frontends":[{"backends":[{}]}]}],"peers":[{}],"drain":{},"routes":[{}],"dataPlane":{},"dsr":{},"serviceProxy":{}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		fuzzlimit.Time(t)
		var s Status
		if socket.Decode(bytes.NewReader(text), "a.sock", int64(len(text)), &s) != nil {
			return
		}
		for name, view := range map[string]View{
			"status": s.Overview(), "services": s.ServicesView(), "backends": s.BackendsView(), "routes": s.RoutesView(), "peers": s.PeersView(),
			"why": s.ExplainServiceView(),
		} {
			checkView(t, name, view)
		}
	})
}

func checkView(t *testing.T, name string, view View) {
	t.Helper()
	shown := map[Format]*bytes.Buffer{}
	for _, format := range append(Formats[:len(Formats):len(Formats)], Sections, SectionsWide) {
		shown[format] = &bytes.Buffer{}
		if err := Write(shown[format], view, format); err != nil {
			t.Fatalf("%s as %s: %v", name, format, err)
		}
	}
	for _, format := range []Format{Table, Wide} {
		for _, r := range shown[format].String() {
			if r != '\n' && r != '\t' && !unicode.IsGraphic(r) {
				t.Errorf("%s: the %s has %U", name, format, r)
			}
		}
		if !utf8.Valid(shown[format].Bytes()) {
			t.Errorf("%s: the %s is not UTF-8", name, format)
		}
	}
	var sections []Section
	if err := json.Unmarshal(shown[Sections].Bytes(), &sections); err != nil {
		t.Errorf("%s: sections: %v", name, err)
	}
	var fromJSON, fromYAML any
	if err := json.Unmarshal(shown[JSON].Bytes(), &fromJSON); err != nil {
		t.Errorf("%s: JSON: %v", name, err)
	}
	if err := yaml.Unmarshal(shown[YAML].Bytes(), &fromYAML); err != nil {
		t.Errorf("%s: YAML: %v", name, err)
	}
}
