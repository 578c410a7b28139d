package yamltree

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
)

func nested(open, middle, shut string, n int) string {
	return strings.Repeat(open, n) + middle + strings.Repeat(shut, n)
}

func TestDepth(t *testing.T) {
	for name, text := range map[string]func(n int) string{
		"a.yaml": func(n int) string { return nested("[", "1", "]", n) },
		"b.yaml": func(n int) string { return nested("{a: ", "1", "}", n) },
		"c.yaml": func(n int) string { return nested("- ", "1", "", n) },
		"d.json": func(n int) string { return nested("[", "1", "]", n) },
		"e.json": func(n int) string { return nested(`{"a":`, "1", "}", n) },
		"g.yaml": func(n int) string { return "a: " + nested("[", "1", "]", n-1) },
		"h.yaml": func(n int) string { return "? " + nested("[", "1", "]", n-1) + "\n: b" },
		"i.json": func(n int) string { return `{"a":1}` + nested("[", "", "]", n) },
		"f.yaml": func(n int) string { return "a: b\n---\n" + nested("[", "1", "]", n) },
	} {
		if _, bad := Parse(name, []byte(text(MaxDepth))); bad != nil {
			t.Errorf("%s, %d deep: %+v", name, MaxDepth, bad)
		}
		for _, n := range []int{MaxDepth + 1, 5000} {
			_, bad := Parse(name, []byte(text(n)))
			if bad == nil || !strings.Contains(bad.Message, "nested deeper than 200") {
				t.Errorf("%s, %d deep: %+v, want the limit", name, n, bad)
			}
		}
	}
}

// TestHalfJSON checks that a text truncated within a value is an error, not an empty file.
func TestHalfJSON(t *testing.T) {
	const whole = `{"a": [1, {"b": "c"}], "d": null}`
	for n := 1; n < len(whole); n++ {
		docs, bad := Parse("a.json", []byte(whole[:n]))
		if bad == nil || docs != nil || !strings.Contains(bad.Message, "half-written") {
			t.Errorf("%s: %d documents, %+v", whole[:n], len(docs), bad)
		}
	}
	if docs, bad := Parse("a.json", []byte(whole+whole)); bad != nil || len(docs) != 2 {
		t.Errorf("%d documents, %+v", len(docs), bad)
	}
}

func TestCost(t *testing.T) {
	laughs := "a: &a0 [xx]\n"
	for i := range 30 {
		laughs += fmt.Sprintf("b%d: &a%d [*a%d, *a%d, *a%d]\n", i, i+1, i, i, i)
	}
	for text, want := range map[string]int{
		"a": 2, "[a, bb]": 1 + 2 + 3, "a: b": 1 + 2 + 2, "[&x [a, a], *x]": 1 + 2*(1+2+2), "&x [*x]": 1001, laughs: 1001, "[" + strings.Repeat("a, ", 2000) + "]": 1001,
	} {
		docs, bad := Parse("a.yaml", []byte(text))
		if bad != nil {
			t.Fatalf("%.40s: %+v", text, bad)
		}
		if got := Cost(docs[0], 1000); got != want && (want <= 1000 || got <= 1000) {
			t.Errorf("%.40s: %d, want %d", text, got, want)
		}
	}
}

// TestTime parses large hostile texts. Each takes well below a second; with quadratic
// complexity they would take minutes.
func TestTime(t *testing.T) {
	const size = 4 << 20
	for _, unit := range []string{
		"[", "{a: ", "- ", "? ", "&a ", "!a ", "# a\n", "---\n", "a: ", "a\n", "\"", "'", "|\n", "*a ", "[*a, ", "%a\n", "a: &a\n", "\t", "- a\n", "\"\\u0041", "[[],", "a #\n", "...\n",
	} {
		start := time.Now()
		_, _ = Parse("a.yaml", []byte(strings.Repeat(unit, size/len(unit))))
		if took := time.Since(start); took > 30*time.Second {
			t.Errorf("%q repeated to %d bytes takes %s", unit, size, took)
		}
	}
}

// FuzzParse checks that every error has an existing line, that no tree exceeds the depth
// limit, and that valid JSON is parsed as by the standard library.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"a: 1\nb: [x, {y: z}]\n", "- &a {b: c}\n- *a\n- <<: *a\n", "a: &a [*a]\n", "--- 1\n--- |\n  text\n...\n", "? [a]\n: b\n", "a: [", "%YAML 1.1\n---\na\n",
		`{"a":[1,2e3,null,true,"\ud800"]}`, `{} []`, "1 2", "{\"a\":\n}", "\ufeffa: b", "[\"a\",\r\n}", "# c\n\n---\n# d\n",
		nested("[", "", "]", MaxDepth+1), nested("{a: ", "1", "}", MaxDepth+1),
	} {
		f.Add(false, []byte(text))
		f.Add(true, []byte(text))
	}
	f.Fuzz(func(t *testing.T, isJSON bool, text []byte) {
		fuzzlimit.Time(t)
		name := map[bool]string{true: "a.json", false: "a.yaml"}[isJSON]
		docs, bad := Parse(name, text)
		if bad != nil && (bad.Line < 1 || bad.Line > Lines(text) || bad.Message == "" || docs != nil) {
			t.Errorf("%+v of %d lines, %d documents", bad, Lines(text), len(docs))
		}
		for _, n := range docs {
			check(t, n, 0, Lines(text))
			Cost(n, 10*len(text))
		}
		if isJSON {
			checkJSON(t, text, docs, bad)
		}
	})
}

func check(t *testing.T, n *yaml.Node, depth, lines int) {
	container := n.Kind == yaml.SequenceNode || n.Kind == yaml.MappingNode
	if depth > MaxDepth || container && depth == MaxDepth || n.Line < 0 || n.Line > lines {
		t.Fatalf("depth %d, line %d of %d", depth, n.Line, lines)
	}
	Got(n)
	for _, c := range n.Content {
		check(t, c, depth+1, lines)
	}
}

// checkJSON compares the result with that of the standard library.
func checkJSON(t *testing.T, text []byte, docs []*yaml.Node, bad *Error) {
	var all []any
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	for {
		var v any
		err := dec.Decode(&v)
		if err == io.EOF {
			break
		}
		if err != nil {
			if bad == nil {
				t.Errorf("%q is read, but is not JSON: %v", text, err)
			}
			return
		}
		all = append(all, v)
	}
	if bad != nil {
		if len(all) > 0 && !strings.Contains(bad.Message, "deeper") {
			t.Errorf("%q is JSON, but is not read: %+v", text, bad)
		}
		return
	}
	for i, v := range all {
		want, _ := json.Marshal(v)
		if got, _ := json.Marshal(valueOf(docs[i])); len(docs) != len(all) || !bytes.Equal(got, want) {
			t.Errorf("%q is read as %s, want %s", text, got, want)
		}
	}
}

// valueOf converts a node to what the standard library would return.
func valueOf(n *yaml.Node) any {
	switch {
	case n.Kind == yaml.SequenceNode:
		list := []any{}
		for _, c := range n.Content {
			list = append(list, valueOf(c))
		}
		return list
	case n.Kind == yaml.MappingNode:
		fields := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			fields[n.Content[i].Value] = valueOf(n.Content[i+1])
		}
		return fields
	case n.Tag == "!!null":
		return nil
	case n.Tag == "!!bool":
		return n.Value == "true"
	case n.Tag == "!!str":
		return n.Value
	}
	return json.Number(n.Value)
}
