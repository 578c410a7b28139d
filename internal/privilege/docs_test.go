package privilege_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/privilege"
)

var update = flag.Bool("update", false, "write the table of capabilities into docs/security.md")

const (
	page  = "../../docs/security.md"
	begin = "<!-- capabilities: written by go test ./internal/privilege -update -->\n"
	end   = "<!-- end -->"
)

// TestDocs checks that docs/security.md has the table.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	have, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no place for the table: %s%s", page, begin, end)
	}
	want := table()
	if have == want {
		return
	}
	if !*update {
		t.Fatalf("%s has another table than this; go test ./internal/privilege -update writes it:\n%s", page, want)
	}
	if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func table() string {
	var b strings.Builder
	b.WriteString("\n| role | process | capability | with which it |\n|---|---|---|---|\n")
	for _, r := range privilege.Table {
		if len(r.Needs) == 0 {
			fmt.Fprintf(&b, "| %s | `%s` | none | |\n", r.Name, r.Command)
		}
		for _, n := range r.Needs {
			fmt.Fprintf(&b, "| %s | `%s` | `%s` | %s |\n", r.Name, r.Command, n.Capability, n.Why)
		}
	}
	return b.String() + "\n"
}

// TestFor checks that a capability that another one includes is left out, and that missing
// ones are those that are not held, not even through another one.
func TestFor(t *testing.T) {
	words := func(roles ...string) string { return privilege.Words(privilege.For(roles...)) }
	for want, have := range map[string]string{
		"CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON":              words(privilege.Balancer, privilege.DSR),
		"CAP_NET_ADMIN, CAP_SYS_ADMIN":                     words(privilege.Balancer, privilege.Takeover),
		"CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW, CAP_PERFMON": words(privilege.Balancer, privilege.BalancerLayer2),
		"": words(privilege.Controller),
	} {
		if have != want {
			t.Errorf("%s, want %s", have, want)
		}
	}
	needs := privilege.For(privilege.DSR)
	for held, want := range map[privilege.Set]string{
		0: "CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON", privilege.All: "", 1 << privilege.SysAdmin: "CAP_NET_ADMIN", 1 << privilege.BPF: "CAP_NET_ADMIN, CAP_PERFMON",
	} {
		if missing := privilege.Words(privilege.Missing(needs, held)); missing != want {
			t.Errorf("with %x %q is missing, want %q", uint64(held), missing, want)
		}
	}
}
