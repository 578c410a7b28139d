package source_test

import (
	"testing"

	"github.com/fairlead/fairlead/source"
)

func TestSelector(t *testing.T) {
	for text, want := range map[string]source.Selector{
		"lb/balancers":                    {Namespace: "lb", Label: source.LabelServiceName, Value: "balancers"},
		"lb/fairlead.io/balancers=true":   {Namespace: "lb", Label: "fairlead.io/balancers", Value: "true"},
		"lb/role=edge":                    {Namespace: "lb", Label: "role", Value: "edge"},
		"lb/kubernetes.io/service-name=x": {Namespace: "lb", Label: source.LabelServiceName, Value: "x"},
	} {
		got, err := source.ParseSelector(text)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		if again, err := source.ParseSelector(got.String()); err != nil || again != got {
			t.Errorf("%s becomes %s, which is %+v, %v", text, got, again, err)
		}
	}
	for _, text := range []string{"", "lb", "lb/", "/x", "lb/a/b", "lb/=true", "lb/key=", "lb/key=a=b", "lb/a,b", "l b/x", "lb/k=a/b"} {
		if got, err := source.ParseSelector(text); err == nil {
			t.Errorf("%q: %+v, want it refused", text, got)
		}
	}
	s := source.Selector{Namespace: "lb", Label: "role", Value: "edge"}
	for _, c := range []struct {
		namespace string
		labels    map[string]string
		want      bool
	}{
		{"lb", map[string]string{"role": "edge", "other": "x"}, true},
		{"lb", map[string]string{"role": "core"}, false},
		{"lb", nil, false},
		{"web", map[string]string{"role": "edge"}, false},
	} {
		if got := s.Selects(c.namespace, c.labels); got != c.want {
			t.Errorf("%s %v: %v", c.namespace, c.labels, got)
		}
	}
}
