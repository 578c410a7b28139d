package reference

import (
	"path/filepath"
	"slices"
	"testing"

	"go.yaml.in/yaml/v3"
)

// form is an issue form, as far as GitHub requires its fields.
type form struct {
	Name        string
	Description string
	Labels      []string
	Body        []struct {
		Type       string
		ID         string `yaml:"id"`
		Attributes struct {
			Label, Description, Value, Render string
			Options                           []string
		}
		Validations struct{ Required bool }
	}
}

// TestIssueForms checks that GitHub accepts the issue forms: it shows none with an error.
func TestIssueForms(t *testing.T) {
	const folder = ".github/ISSUE_TEMPLATE"
	forms, err := filepath.Glob(filepath.Join(repository, folder, "*.yml"))
	if err != nil || len(forms) < 3 {
		t.Fatalf("%v: %v", forms, err)
	}
	for _, file := range forms {
		if filepath.Base(file) == "config.yml" {
			continue
		}
		var f form
		if err := yaml.Unmarshal(read(t, filepath.Join(folder, filepath.Base(file))), &f); err != nil || f.Name == "" || f.Description == "" || len(f.Body) == 0 {
			t.Errorf("%s: %v: %+v", file, err, f)
		}
		ids := map[string]bool{}
		for i, b := range f.Body {
			switch {
			case b.Type == "markdown" && b.Attributes.Value != "":
			case !slices.Contains([]string{"textarea", "input", "dropdown"}, b.Type):
				t.Errorf("%s: element %d has the type %q", file, i, b.Type)
			case b.ID == "" || ids[b.ID] || b.Attributes.Label == "" || (b.Type == "dropdown") != (len(b.Attributes.Options) > 0):
				t.Errorf("%s: element %d: %+v", file, i, b)
			}
			ids[b.ID] = true
		}
	}
}
