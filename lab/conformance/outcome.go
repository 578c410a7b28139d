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
var update = flag.Bool("update", false, "write the outcomes of the conformance suite, or the page of them, anew")

// Outcome is the outcome of a story.
type Outcome struct {
	Story string `json:"story"`
	// Told is set if at least a part of the story was run.
	Told bool `json:"told"`
	// Refused contains the names of the features that the data plane does not support,
	// sorted.
	Refused []string `json:"refused,omitempty"`

	inParts bool
}

func (o *Outcome) refuse(what string) {
	if !slices.Contains(o.Refused, what) {
		o.Refused = append(o.Refused, what)
		slices.Sort(o.Refused)
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
		t.Errorf("%s (%v) is not what came of this run; go test with -update, here and in lab/conformance, if that is meant:\n%s", file, err, text)
	}
}
