package access

import (
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
)

// actions lists all kinds of actions and the roles that permit them: a(dmin), t(enant) of
// science and lab-*, n(ode) n1, r(eader).
var actions = []struct {
	action Action
	may    string
}{
	{Action{Read, Network, "", ""}, "atr"},
	{Action{Read, Network, "science", ""}, "atnr"},
	{Action{Read, Network, "other", ""}, "anr"},
	{Action{Change, Network, "science", ""}, "at"},
	{Action{Change, Network, "lab-1", ""}, "at"},
	{Action{Change, Network, "la", ""}, "a"},
	{Action{Change, Network, "science2", ""}, "a"},
	{Action{Read, Attachment, "", ""}, "atr"},
	{Action{Read, Attachment, "", "n1"}, "atnr"},
	{Action{Read, Attachment, "other", "n1"}, "anr"},
	{Action{Read, Attachment, "science", "n2"}, "atr"},
	{Action{Change, Attachment, "science", "n1"}, "atn"},
	{Action{Change, Attachment, "other", "n1"}, "an"},
	{Action{Change, Attachment, "other", "n2"}, "a"},
	{Action{Change, OfNode, "", "n1"}, "an"},
	{Action{Read, OfNode, "", "n1"}, "anr"},
	{Action{Change, OfNode, "", "n2"}, "a"},
	{Action{Change, Nodes, "", "n1"}, "a"},
	{Action{Read, Peer, "", ""}, "ar"},
	{Action{Change, Peer, "", ""}, "a"},
	{Action{Read, View, "", ""}, "atr"},
}

func TestMay(t *testing.T) {
	who := map[rune]Identity{
		'a': {Name: "ops", Role: Admin}, 't': {Name: "lab", Role: Tenant, Networks: []string{"science", "lab-*"}},
		'n': {Name: "n1", Role: Node, Node: "n1"}, 'r': {Name: "grafana", Role: Reader}, 'x': {Name: "none"},
	}
	for _, c := range actions {
		for letter, i := range who {
			err := i.May(c.action)
			if may := strings.ContainsRune(c.may, letter); may != (err == nil) {
				t.Errorf("%s: %s: %v, want that it may: %v", i.Role, c.action, err, may)
			}
			if err != nil && (!strings.Contains(err.Error(), "token "+i.Name+" (role ") || !strings.Contains(err.Error(), "that requires role ")) {
				t.Errorf("%v does not say who is missing what", err)
			}
		}
	}
	if any := (Identity{Role: Node, Node: "*"}); any.May(Action{Change, OfNode, "", "n7"}) != nil {
		t.Error("a token for any node is refused at n7")
	}
}

const example = `tokens:
- name: ops
  role: admin
  sha256: 2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b
- name: lab
  role: tenant
  networks: [science, lab-*]
  sha256: 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824
`

func TestParse(t *testing.T) {
	tokens, err := Parse("a.yaml", []byte(example))
	if err != nil {
		t.Fatal(err)
	}
	if i, ok := tokens.Find("secret"); !ok || i.Name != "ops" || i.Role != Admin {
		t.Errorf("%+v %v", i, ok)
	}
	if i, ok := tokens.Find("hello"); !ok || !i.Sees("lab-7") || i.Sees("lab") {
		t.Errorf("%+v %v", i, ok)
	}
	if _, ok := tokens.Find("hallo"); ok {
		t.Error("a token that is not there is found")
	}
	row := func(rest string) string {
		return "tokens:\n- name: a\n  sha256: " + hex.EncodeToString(make([]byte, 32)) + "\n  " + rest + "\n"
	}
	for text, want := range map[string]string{
		"": "the file is empty", "- a": "a.yaml:1: list of tokens not found", "tokens: 3": "a.yaml:1: list of tokens not found",
		"tokens:\n- x":                                     "a.yaml:2: token , has no fields",
		row("role: boss"):                                  "a.yaml:2: token a, role: \"boss\" is not a role: use one of [admin tenant node reader]",
		row("role: admin\n  networks: [a]"):                "networks: required for role tenant",
		row("role: tenant"):                                "networks: required for role tenant",
		row("role: tenant\n  networks: [\"*a\"]"):          "networks: \"*a\" is not a name",
		row("role: node"):                                  "node: required for role node",
		row("role: reader\n  node: n1"):                    "node: required for role node",
		row("rol: admin"):                                  "rol: unknown field; did you mean \"role\"?",
		"tokens:\n- name: a\n  role: admin\n  sha256: abc": "sha256: want a SHA-256 hash",
		"tokens:\n- name: a b\n  role: admin\n  sha256: " + hex.EncodeToString(make([]byte, 32)):   "name: \"a b\" is not a name",
		example + strings.TrimPrefix(strings.Replace(example, "ops", "ops2", 1), "tokens:\n"):      "a.yaml:9: token ops2, sha256: also used by token ops",
		example + "- name: ops\n  role: reader\n  sha256: " + hex.EncodeToString(make([]byte, 32)): "a.yaml:9: token ops, name: ops is duplicated",
	} {
		if _, err := Parse("a.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestNew checks that New creates readable entries and a different token each time.
func TestNew(t *testing.T) {
	first, e, err := New(Entry{Name: "n1", Role: Node, Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	second, _, _ := New(Entry{Name: "n1", Role: Node, Node: "n1"})
	if first == second || len(first) < 40 || strings.Contains(e.SHA256, first) {
		t.Errorf("%q %q %+v", first, second, e)
	}
	tokens, err := Parse("a.yaml", []byte(fmt.Sprintf("tokens:\n- {name: %s, role: %s, node: %s, sha256: %s}\n", e.Name, e.Role, e.Node, e.SHA256)))
	if i, ok := tokens.Find(first); err != nil || !ok || !i.IsNode("n1") {
		t.Errorf("%+v %v %v", i, ok, err)
	}
	if _, _, err := New(Entry{Name: "x", Role: Tenant}); err == nil {
		t.Error("a tenant without networks is made")
	}
}

// TestFileIsReadAgain checks that a removed token loses its permissions, and that an
// unreadable file changes nothing.
func TestFileIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.yaml")
	at := time.Now().Add(-time.Hour)
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		at = at.Add(time.Second)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	known := func(f *File) (all []string) {
		for _, token := range []string{"secret", "hello", "also"} {
			if i, ok := f.Find(token); ok {
				all = append(all, i.Name)
			}
		}
		return all
	}
	write(example)
	f, err := Open(path, Single("one", "also"), slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"ops", "lab", "one"}, known(f)); d != "" {
		t.Error(d)
	}
	write("tokens: [")
	if d := cmp.Diff([]string{"ops", "lab", "one"}, known(f)); d != "" {
		t.Errorf("a file that cannot be read: %s", d)
	}
	write(example[:strings.Index(example, "- name: lab")])
	if d := cmp.Diff([]string{"ops", "one"}, known(f)); d != "" {
		t.Errorf("a token was taken out: %s", d)
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none"), nil, slog.Default()); err == nil {
		t.Error("a file that is not there is read")
	}
}

// FuzzParse checks that arbitrary input yields tokens with roles, or an error with a
// message.
func FuzzParse(f *testing.F) {
	f.Add([]byte(example))
	f.Add([]byte("tokens: []"))
	f.Add([]byte("tokens:\n- {name: a, role: node, node: \"*\", sha256: 00}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		fuzzlimit.Time(t)
		tokens, err := Parse("a.yaml", text)
		if err != nil && err.Error() == "" {
			t.Error("an error without words")
		}
		for _, i := range tokens {
			if i.Name == "" || (i.Role == Tenant) != (len(i.Networks) > 0) || (i.Role == Node) != (i.Node != "") {
				t.Errorf("%+v", i)
			}
		}
	})
}
