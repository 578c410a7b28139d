package reference

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

type crd struct {
	Spec struct {
		Names struct {
			Kind       string   `json:"kind"`
			Plural     string   `json:"plural"`
			ShortNames []string `json:"shortNames"`
		} `json:"names"`
		Scope    string `json:"scope"`
		Versions []struct {
			Schema struct {
				OpenAPIV3Schema schema `json:"openAPIV3Schema"`
			} `json:"schema"`
		} `json:"versions"`
	} `json:"spec"`
}

type schema struct {
	Type                 string            `json:"type"`
	Format               string            `json:"format"`
	Description          string            `json:"description"`
	Default              json.RawMessage   `json:"default"`
	Enum                 []string          `json:"enum"`
	Pattern              string            `json:"pattern"`
	Minimum              *int64            `json:"minimum"`
	Maximum              *int64            `json:"maximum"`
	MinLength            *int64            `json:"minLength"`
	MaxLength            *int64            `json:"maxLength"`
	MinItems             *int64            `json:"minItems"`
	MaxItems             *int64            `json:"maxItems"`
	MaxProperties        *int64            `json:"maxProperties"`
	Required             []string          `json:"required"`
	Properties           map[string]schema `json:"properties"`
	Items                *schema           `json:"items"`
	AdditionalProperties *schema           `json:"additionalProperties"`
	Validations          []struct {
		Message string `json:"message"`
		Rule    string `json:"rule"`
	} `json:"x-kubernetes-validations"`
}

// TestResources: docs/reference/resources.md is generated from deploy/crds.
func TestResources(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(repository, "deploy/crds/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatal("no CRDs: ", err)
	}
	var b strings.Builder
	b.WriteString("# Custom resources\n\nThis page is generated from the CustomResourceDefinitions in `deploy/crds`; " +
		"`kubectl explain` shows the same on a cluster. All kinds are in `fairlead.io/v1alpha1`. " +
		"[Kubernetes](../kubernetes.md), [BGP](../bgp.md) and [addresses](../addresses.md) have examples.\n")
	for _, file := range files {
		var c crd
		name, _ := filepath.Rel(repository, file)
		if err := yaml.Unmarshal(read(t, name), &c); err != nil || len(c.Spec.Versions) != 1 {
			t.Fatalf("%s: %v, %d versions", file, err, len(c.Spec.Versions))
		}
		c.describe(&b)
	}
	compare(t, "resources.md", b.String())
}

func (c crd) describe(b *strings.Builder) {
	names, s := c.Spec.Names, c.Spec.Versions[0].Schema.OpenAPIV3Schema
	fmt.Fprintf(b, "\n## %s\n\n%s\n\n", names.Kind, prose(s.Description))
	fmt.Fprintf(b, "`kubectl get %s`", names.Plural)
	for _, short := range names.ShortNames {
		fmt.Fprintf(b, " or `%s`", short)
	}
	fmt.Fprintf(b, "; scope: %s\n\n", strings.ToLower(c.Spec.Scope))
	b.WriteString(header("field", "type", "description"))
	for _, top := range []string{"spec", "status"} {
		if part, ok := s.Properties[top]; ok {
			part.rows(b, top, slices.Contains(s.Required, top))
		}
	}
}

// rows writes the row of a field, and those of the fields in it.
func (s schema) rows(b *strings.Builder, path string, required bool) {
	standard := s.standard()
	kind := append([]string{s.kind()}, s.limits()...)
	if required {
		kind = append(kind, "required")
	}
	if d := s.defaults(); d != "" {
		kind = append(kind, "default "+code(d))
	}
	b.WriteString(row(code(path), strings.Join(kind, "; "), strings.Join(append([]string{prose(s.Description)}, s.rules()...), "<br>")))
	if standard != "" {
		return
	}
	below := s
	if s.Items != nil {
		below, path = *s.Items, path+"[]"
	}
	for _, name := range slices.Sorted(maps.Keys(below.Properties)) {
		below.Properties[name].rows(b, path+"."+name, slices.Contains(below.Required, name))
	}
}

// standard names a type of Kubernetes, whose fields need no description here.
func (s schema) standard() string {
	has := func(in *schema, names ...string) bool {
		for _, n := range names {
			if _, ok := in.Properties[n]; !ok {
				return false
			}
		}
		return true
	}
	switch {
	case has(&s, "matchExpressions", "matchLabels"):
		return "[label selector](https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors)"
	case s.Items != nil && has(s.Items, "lastTransitionTime", "reason"):
		return "conditions"
	}
	return ""
}

func (s schema) kind() string {
	switch standard := s.standard(); {
	case standard != "":
		return standard
	case s.Items != nil:
		return "list of " + s.Items.kind()
	case s.AdditionalProperties != nil:
		return "map of " + s.AdditionalProperties.kind()
	case s.Format == "date-time":
		return "time"
	}
	return s.Type
}

func (s schema) defaults() string {
	if text := string(s.Default); text != "{}" {
		return strings.Trim(text, `"`)
	}
	return ""
}

// rules returns the messages of validation rules.
func (s schema) rules() (all []string) {
	for _, of := range []*schema{&s, s.Items} {
		if of == nil {
			continue
		}
		for _, v := range of.Validations {
			all = append(all, "*Validation error:* "+prose(v.Message))
		}
	}
	return all
}

// limits returns the limits of a value and, in a list, of each item.
func (s schema) limits() (all []string) {
	if len(s.Enum) > 0 {
		all = append(all, "`"+strings.Join(s.Enum, "`, `")+"`")
	}
	all = append(all, between(s.Minimum, s.Maximum, "")...)
	all = append(all, between(s.MinLength, s.MaxLength, " characters")...)
	all = append(all, between(s.MinItems, s.MaxItems, " items")...)
	all = append(all, between(nil, s.MaxProperties, " entries")...)
	if s.Pattern != "" {
		all = append(all, code(s.Pattern))
	}
	if s.Items != nil {
		for _, l := range s.Items.limits() {
			all = append(all, "each "+l)
		}
	}
	return all
}

func between(low, high *int64, unit string) []string {
	switch {
	case low != nil && high != nil && *low == *high:
		return []string{fmt.Sprintf("%d%s", *low, unit)}
	case low != nil && high != nil:
		return []string{fmt.Sprintf("%d to %d%s", *low, *high, unit)}
	case low != nil:
		return []string{fmt.Sprintf("at least %d%s", *low, unit)}
	case high != nil:
		return []string{fmt.Sprintf("at most %d%s", *high, unit)}
	}
	return nil
}
