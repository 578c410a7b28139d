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

// update makes the tests of data planes rewrite their outcomes, and the test in this
// package rewrite the documentation page.
var update = flag.Bool("update", false, "rewrite the outcomes of the conformance suite, or the page generated from them")

// Outcome is the outcome of a story.
type Outcome struct {
	Story string `json:"story"`
	// Run is set if at least a part of the story was run.
	Run bool `json:"run"`
	// Unsupported contains the names of the features that the data plane does not support,
	// sorted.
	Unsupported []string `json:"unsupported,omitempty"`

	inParts bool
}

func (o *Outcome) addUnsupported(what string) {
	if !slices.Contains(o.Unsupported, what) {
		o.Unsupported = append(o.Unsupported, what)
		slices.Sort(o.Unsupported)
	}
}

// Outcomes contains the outcomes of one data plane, one per story.
type Outcomes []Outcome

// outcomesDir is the folder of the recorded outcomes, relative to a data plane's package.
const outcomesDir = "../../lab/conformance/testdata"

// Recorded fails unless the recorded file of that data plane contains the same outcomes.
// docs/data-planes.md is generated from these files. It does nothing if only some stories
// were run.
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
		t.Errorf("%s (%v) differs from this run; if this is intended, run go test -update here and in lab/conformance:\n%s", file, err, text)
	}
}
