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
	f.Add([]byte(`{"services":[null,{"frontends":[{"backends":[{}]}]}],"peers":[{}],"drain":{},"routes":[{}],"dataPlane":{},"serverHalf":{},"serviceProxy":{}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		fuzzlimit.Time(t)
		var s Status
		if decode(bytes.NewReader(text), "a.sock", int64(len(text)), &s) != nil {
			return
		}
		for name, view := range map[string]View{
			"status": s.Overview(), "services": s.ServicesView(), "backends": s.BackendsView(), "routes": s.RoutesView(), "peers": s.PeersView(),
			"why": s.ExplainAnnounceView(),
		} {
			checkView(t, name, view)
		}
	})
}

func checkView(t *testing.T, name string, view View) {
	t.Helper()
	var shown [3]bytes.Buffer
	for i, format := range Formats {
		if err := Write(&shown[i], view, format); err != nil {
			t.Fatalf("%s as %s: %v", name, format, err)
		}
	}
	for _, r := range shown[0].String() {
		if r != '\n' && r != '\t' && !unicode.IsGraphic(r) {
			t.Errorf("%s: the table has %U", name, r)
		}
	}
	if !utf8.Valid(shown[0].Bytes()) {
		t.Errorf("%s: the table is not UTF-8", name)
	}
	var fromJSON, fromYAML any
	if err := json.Unmarshal(shown[1].Bytes(), &fromJSON); err != nil {
		t.Errorf("%s: JSON: %v", name, err)
	}
	if err := yaml.Unmarshal(shown[2].Bytes(), &fromYAML); err != nil {
		t.Errorf("%s: YAML: %v", name, err)
	}
}
