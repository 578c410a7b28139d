package reference

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	jsonyaml "sigs.k8s.io/yaml"
)

// common describes values that mean the same wherever they occur.
var common = map[string]string{
	"nodeSelector": "Node selector of the pods.",
	"tolerations":  "Tolerations of the pods.",
	"affinity":     "Affinity of the pods.",
	"resources":    "Resource requests and limits of the container.",
}

// valueSchema is the part of values.schema.json that the page shows.
type valueSchema struct {
	Type       string                 `json:"type"`
	Enum       []any                  `json:"enum"`
	Minimum    *int64                 `json:"minimum"`
	Maximum    *int64                 `json:"maximum"`
	Items      *valueSchema           `json:"items"`
	Properties map[string]valueSchema `json:"properties"`
}

// TestHelmValues: docs/reference/helm.md is generated from the chart's values and their
// comments.
func TestHelmValues(t *testing.T) {
	const chart = "deploy/helm/fairlead/"
	var values yaml.Node
	if err := yaml.Unmarshal(read(t, chart+"values.yaml"), &values); err != nil {
		t.Fatal(err)
	}
	var schema valueSchema
	if err := jsonyaml.Unmarshal(read(t, chart+"values.schema.json"), &schema); err != nil {
		t.Fatal(err)
	}
	v := valuesPage{t: t}
	v.WriteString("# Helm values\n\nThis page is generated from `" + chart + "values.yaml` and its schema. Set values with `--set KEY=VALUE` " +
		"or in a file (`--values FILE`), as [Kubernetes](../kubernetes.md#install-with-helm) shows.\n\n")
	v.sections(values.Content[0], schema)
	compare(t, "helm.md", v.String())
}

type valuesPage struct {
	strings.Builder
	t *testing.T
}

// sections describes each part of the chart in a section of its own.
func (v *valuesPage) sections(of *yaml.Node, s valueSchema) {
	var single yaml.Node
	for i := 0; i+1 < len(of.Content); i += 2 {
		if of.Content[i+1].Kind != yaml.MappingNode {
			single.Content = append(single.Content, of.Content[i:i+2]...)
		}
	}
	v.WriteString("## General\n\n" + valuesHeader)
	v.rows("", &single, s)
	for i := 0; i+1 < len(of.Content); i += 2 {
		key, value := of.Content[i], of.Content[i+1]
		if value.Kind == yaml.MappingNode {
			v.WriteString("\n## " + key.Value + "\n\n" + v.comment(key.Value, key) + "\n\n" + valuesHeader)
			v.rows(key.Value+".", value, s.Properties[key.Value])
		}
	}
}

var valuesHeader = header("key", "type and default", "description")

func (v *valuesPage) rows(path string, of *yaml.Node, s valueSchema) {
	for i := 0; i+1 < len(of.Content); i += 2 {
		key, value := of.Content[i], of.Content[i+1]
		full, below := path+key.Value, s.Properties[key.Value]
		text := v.comment(full, key)
		if value.Kind == yaml.MappingNode && len(below.Properties) > 0 && common[key.Value] == "" {
			v.WriteString(row(code(full), "", text))
			v.rows(full+".", value, below)
			continue
		}
		v.WriteString(row(code(full), below.kind()+"<br>"+code(shown(v.t, value)), text))
	}
}

// comment returns the description of a key.
func (v *valuesPage) comment(path string, key *yaml.Node) string {
	text := comment(key.HeadComment)
	if text == "" {
		text = common[key.Value]
	}
	if text == "" {
		v.t.Errorf("values.yaml:%d: %s has no comment above it", key.Line, path)
	}
	return text
}

var (
	pageNames = regexp.MustCompile(`docs/([a-z0-9-]+)\.md(#[a-z-]+)?`)
	// lead is what stands above the comment of the first key.
	lead = regexp.MustCompile(`(?s)^.*\n\n`)
)

// comment returns the text of a comment, with links.
func comment(text string) string {
	text = strings.ReplaceAll(lead.ReplaceAllString(text, ""), "#", "\x00")
	text = strings.NewReplacer("\n\x00", "\n", "\x00", "#").Replace(strings.TrimPrefix(text, "\x00"))
	return pageNames.ReplaceAllString(prose(text), "[$1](../$1.md$2)")
}

func (s valueSchema) kind() string {
	switch {
	case len(s.Enum) > 0:
		var all []string
		for _, e := range s.Enum {
			if e == "" {
				e = `""`
			}
			all = append(all, fmt.Sprintf("`%v`", e))
		}
		return strings.Join(all, ", ")
	case s.Items != nil:
		return strings.TrimSpace("list of " + s.Items.kind())
	case s.Minimum != nil && s.Maximum != nil:
		return fmt.Sprintf("%s, %d to %d", s.Type, *s.Minimum, *s.Maximum)
	case s.Minimum != nil:
		return fmt.Sprintf("%s, at least %d", s.Type, *s.Minimum)
	}
	return s.Type
}

// shown returns a default in one line.
func shown(t *testing.T, value *yaml.Node) string {
	plain := *value
	plain.Style = yaml.FlowStyle
	if value.Kind == yaml.ScalarNode {
		plain.Style = value.Style
	}
	text, err := yaml.Marshal(&plain)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(text)), " ")
}
