package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const page = "../../docs/data-planes.md"

const opening = `# Data planes

<!-- Written by go test ./lab/conformance -update, from the results of each data plane's own run. -->

This page shows what each data plane supports. *xdp* is Fairlead's XDP program, *ipvs* the kernel's IPVS, *memory* a reference in Go for tests. Select one with the flag --dataplane of the agent ([differences of IPVS](services.md#on-ipvs)).

Every data plane runs the same [conformance stories](../lab/conformance), each with real packets. *Yes, without* lists the parts of a story that the data plane rejects by name; it passes the rest. *No* gives the reason for rejecting all of it.

`

// TestPage checks that the committed page matches the recorded outcomes.
func TestPage(t *testing.T) {
	names := []string{"xdp", "ipvs", "memory"}
	var columns []map[string]Outcome
	for _, name := range names {
		columns = append(columns, recorded(t, name))
	}
	b := &strings.Builder{}
	b.WriteString(opening)
	fmt.Fprintf(b, "| | %s |\n|---|%s\n", strings.Join(names, " | "), strings.Repeat("---|", len(names)))
	for _, story := range stories {
		fmt.Fprintf(b, "| %s |", story.name)
		for i, column := range columns {
			o, ok := column[story.name]
			if !ok {
				t.Errorf("%s has no result for %q: run its tests with -update", names[i], story.name)
			}
			fmt.Fprintf(b, " %s |", o.cell())
		}
		b.WriteString("\n")
	}
	if *update {
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(page); err != nil || string(text) != b.String() {
		t.Errorf("%s (%v) does not match the outcomes; run go test ./lab/conformance -update:\n%s", page, err, b)
	}
}

func (o Outcome) cell() string {
	switch names := strings.Join(o.Unsupported, "; "); {
	case o.Run && names == "":
		return "yes"
	case o.Run:
		return "yes, without " + names
	case names == "":
		return "not run"
	default:
		return "no: " + names
	}
}

func recorded(t *testing.T, name string) map[string]Outcome {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var all Outcomes
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	column := map[string]Outcome{}
	for _, o := range all {
		column[o.Story] = o
	}
	return column
}
