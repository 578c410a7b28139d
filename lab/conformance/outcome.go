package conformance

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// update makes the tests of data planes write their outcomes anew, and the one
// here the page.
var update = flag.Bool("update", false, "write the outcomes of the conformance suite, or the page of them, anew")

// Outcome is what came of a story.
type Outcome struct {
	Story string `json:"story"`
	// Told says that the data plane was told it, in part at least.
	Told bool `json:"told"`
	// Refused are the names of what it refused of it, sorted.
	Refused []string `json:"refused,omitempty"`

	inParts bool
}

func (o *Outcome) refuse(what string) {
	if !slices.Contains(o.Refused, what) {
		o.Refused = append(o.Refused, what)
		slices.Sort(o.Refused)
	}
}

// Outcomes are of one data plane, a story each.
type Outcomes []Outcome

// outcomesDir is where they are written, as seen from a data plane's folder.
const outcomesDir = "../../lab/conformance/testdata"

// Recorded fails unless the file that docs/data-planes.md is made from says the
// same of the data plane of that name. Where only some stories were to be told
// it says nothing.
func (all Outcomes) Recorded(t *testing.T, name string) {
	t.Helper()
	if t.Failed() || len(all) < len(stories) || strings.Contains(flag.Lookup("test.run").Value.String(), "/") {
		return
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, '\n')
	file := filepath.Join(outcomesDir, name+".json")
	if *update {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if recorded, err := os.ReadFile(file); err != nil || !bytes.Equal(recorded, text) {
		t.Errorf("%s (%v) is not what came of this run; go test with -update, here and in lab/conformance, if that is meant:\n%s", file, err, text)
	}
}
