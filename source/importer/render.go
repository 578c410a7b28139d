package importer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"
)

// Text returns a manifest as YAML, with its origin as a comment.
func (m Manifest) Text() []byte {
	var b bytes.Buffer
	for i, o := range m.Objects {
		b.WriteString("---\n")
		if i == 0 {
			fmt.Fprintf(&b, "# From %s\n", oneLine(m.At.String()))
		}
		b.Write(o)
	}
	return b.Bytes()
}

// YAML returns all manifests as one text, preceded by the losses as comments.
func (r *Result) YAML() []byte {
	var b bytes.Buffer
	b.WriteString("# Written by fairlead import.\n")
	writeLosses(&b, r.Losses)
	if command := r.Command(); command != "" {
		fmt.Fprintf(&b, "# Balancers run:\n#   %s\n", oneLine(command))
	}
	for _, m := range slices.Concat(r.Routing, r.Manifests) {
		b.Write(m.Text())
	}
	return b.Bytes()
}

// File returns one manifest for a separate file, with its losses as comments.
func (r *Result) File(m Manifest) []byte {
	var b bytes.Buffer
	b.WriteString("# Written by fairlead import.\n")
	var its []Loss
	for _, l := range r.Losses {
		if l.Service == m.Name {
			its = append(its, l)
		}
	}
	writeLosses(&b, its)
	b.Write(m.Text())
	return b.Bytes()
}

func writeLosses(b *bytes.Buffer, losses []Loss) {
	if len(losses) == 0 {
		return
	}
	b.WriteString("# Without counterpart:\n")
	for _, l := range Lines(losses) {
		fmt.Fprintf(b, "#   %s\n", l)
	}
}

// Lines returns losses, one per line. A loss that several Services share appears once.
func Lines(losses []Loss) (lines []string) {
	said := map[string]bool{}
	for _, l := range losses {
		if line := oneLine(l.String()); !said[line] {
			said[line] = true
			lines = append(lines, line)
		}
	}
	return lines
}

// oneLine prevents text of the input from ending a comment.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\u0085' || r == '\u2028' || r == '\u2029' || r == '\ufffd' || r == '\ufeff' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, " "))
}

// Command returns the command line of a balancer's agent; "" if the input has nothing about
// it.
func (r *Result) Command() string {
	if len(r.Agent) == 0 {
		return ""
	}
	return "fairlead agent --manifest-dir /etc/fairlead/services " + strings.Join(r.Agent, " ")
}

// JSON returns the entire result as JSON.
func (r *Result) JSON() ([]byte, error) {
	type entry struct {
		Name string `json:"name"`
		At
		Objects []json.RawMessage `json:"objects"`
	}
	out := struct {
		Manifests []entry  `json:"manifests"`
		Routing   []entry  `json:"routing"`
		Losses    []Loss   `json:"losses"`
		Agent     []string `json:"agent"`
	}{Manifests: []entry{}, Routing: []entry{}, Losses: append([]Loss{}, r.Losses...), Agent: append([]string{}, r.Agent...)}
	for into, all := range map[*[]entry][]Manifest{&out.Manifests: r.Manifests, &out.Routing: r.Routing} {
		for _, m := range all {
			e := entry{Name: m.Name, At: m.At}
			for _, o := range m.Objects {
				object, err := sigsyaml.YAMLToJSON(o)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", m.At, err)
				}
				e.Objects = append(e.Objects, object)
			}
			*into = append(*into, e)
		}
	}
	text, err := json.MarshalIndent(out, "", "  ")
	return append(text, '\n'), err
}

// Encode encodes an object as YAML.
func Encode(object any) ([]byte, error) {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(object); err != nil {
		return nil, err
	}
	return b.Bytes(), enc.Close()
}
