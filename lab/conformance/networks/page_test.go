package networks_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/vdn/enforce"
	"github.com/fairlead/fairlead/vdn/enforce/kernel"
	"github.com/fairlead/fairlead/vdn/enforce/openvswitch"
)

var update = flag.Bool("update", false, "rewrite the table of the page")

const (
	page  = "../../../docs/vdn-enforcement.md"
	begin = "<!-- capabilities of each enforcer: written by go test ./lab/conformance/networks -update -->\n"
	end   = "<!-- end -->\n"
)

// TestPage checks that the documentation's table matches the capabilities that the
// enforcers report.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no markers for the table", page)
	}
	want := before + begin + table((*kernel.Kernel)(nil).Means(), (*openvswitch.Switch)(nil).Means()) + end + after
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(text) {
		t.Errorf("%s does not match the capabilities of the enforcers; run go test ./lab/conformance/networks -update", page)
	}
}

func table(all ...enforce.Means) string {
	b := &strings.Builder{}
	b.WriteString("\n| |")
	for _, m := range all {
		fmt.Fprintf(b, " `%s` |", m.Name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(all)))
	for _, row := range []struct {
		what, not string
		can       func(enforce.Means) bool
	}{
		{"guarantee", "no: rejected", func(m enforce.Means) bool { return m.Guarantee }},
		{"maximum rate of a network and of a pod", "no", func(m enforce.Means) bool { return m.Cap }},
		{"access between networks and to external addresses", "no", func(m enforce.Means) bool { return m.Access }},
		{"spoofed source addresses are dropped", "no", func(m enforce.Means) bool { return m.Spoof }},
		{"ICMP errors from outside pass for allowed packets", "no", func(m enforce.Means) bool { return m.Errors }},
	} {
		fmt.Fprintf(b, "\n| %s |", row.what)
		for _, m := range all {
			fmt.Fprintf(b, " %s |", map[bool]string{true: "yes", false: row.not}[row.can(m)])
		}
	}
	b.WriteString("\n\n")
	for _, m := range all {
		for _, note := range m.Notes {
			fmt.Fprintf(b, "- `%s`: %s.\n", m.Name, note)
		}
	}
	b.WriteString("\n")
	return b.String()
}
