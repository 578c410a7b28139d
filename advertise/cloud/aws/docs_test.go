package aws

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPoliciesAreThoseThatAreNeeded checks that the page's two policies allow exactly the
// calls in the source.
func TestPoliciesAreThoseThatAreNeeded(t *testing.T) {
	page, err := os.ReadFile("../../../docs/clouds.md")
	if err != nil {
		t.Fatal(err)
	}
	var got [][]string
	for _, block := range strings.Split(string(page), "```json\n")[1:] {
		text, _, _ := strings.Cut(block, "```")
		if strings.Contains(text, `"Statement"`) {
			got = append(got, actions(t, text))
		}
	}
	both := calls(t, "aws.go")
	want := [][]string{append(calls(t, "routes.go"), both...), append(calls(t, "addresses.go"), both...)}
	for _, w := range want {
		slices.Sort(w)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("calls, policies, -want +got:\n%s", d)
	}
}

// actions returns what a policy allows, sorted.
func actions(t *testing.T, text string) (all []string) {
	t.Helper()
	var policy struct {
		Version   string
		Statement []struct {
			Effect           string
			Action, Resource any
			Condition        map[string]map[string]string
		}
	}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&policy); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	for _, s := range policy.Statement {
		if s.Effect != "Allow" || s.Resource == nil {
			t.Errorf("%+v", s)
		}
		switch a := s.Action.(type) {
		case string:
			all = append(all, a)
		case []any:
			for _, one := range a {
				all = append(all, one.(string))
			}
		}
	}
	slices.Sort(all)
	return all
}

// calls returns the requests that a file makes.
func calls(t *testing.T, file string) (all []string) {
	t.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`w\.api\.(\w+)\(`).FindAllStringSubmatch(string(source), -1) {
		all = append(all, "ec2:"+m[1])
	}
	if len(all) == 0 {
		t.Fatalf("%s asks for nothing", file)
	}
	return all
}
