package v1alpha1

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// described is the part of a manifest's schema that is checked.
type described struct {
	Description string               `json:"description"`
	Properties  map[string]described `json:"properties"`
	Items       *described           `json:"items"`
	Required    []string             `json:"required"`
}

// TestManifestsAreOfTheTypes checks that the manifests have the fields of the types,
// each with a description for kubectl explain.
func TestManifestsAreOfTheTypes(t *testing.T) {
	for name, of := range map[string]any{"addresspools": AddressPool{}, "bgppeers": BGPPeer{}, "advertisements": Advertisement{}, "bgpsessions": BGPSession{},
		"virtualnetworks": VirtualNetwork{}, "networkleases": NetworkLease{}} {
		text, err := os.ReadFile("../../deploy/crds/fairlead.io_" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		var crd struct {
			Spec struct {
				Versions []struct {
					Schema struct {
						OpenAPIV3Schema described `json:"openAPIV3Schema"`
					} `json:"schema"`
				} `json:"versions"`
			} `json:"spec"`
		}
		if err := yaml.Unmarshal(text, &crd); err != nil || len(crd.Spec.Versions) != 1 {
			t.Fatalf("%s: %v, %d versions", name, err, len(crd.Spec.Versions))
		}
		compare(t, name, reflect.TypeOf(of), crd.Spec.Versions[0].Schema.OpenAPIV3Schema)
	}
}

func compare(t *testing.T, path string, of reflect.Type, s described) {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
		if of.Kind() == reflect.Slice {
			s = *s.Items
		}
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct || !strings.HasSuffix(of.PkgPath(), "api/v1alpha1") {
		return // a Kubernetes type
	}
	var names, required []string
	for i := range of.NumField() {
		f := of.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" { // TypeMeta
			names = append(names, "apiVersion", "kind")
			continue
		}
		names = append(names, name)
		if !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero") {
			required = append(required, name)
		}
		if s.Properties[name].Description == "" && name != "metadata" {
			t.Errorf("%s.%s has no description", path, name)
		}
		compare(t, path+"."+name, f.Type, s.Properties[name])
	}
	var there []string
	for name := range s.Properties {
		there = append(there, name)
	}
	for _, both := range [][2][]string{{names, there}, {required, s.Required}} {
		slices.Sort(both[0])
		slices.Sort(both[1])
		if !slices.Equal(both[0], both[1]) {
			t.Errorf("%s: the type has %v, the manifest %v; run go generate ./api/...", path, both[0], both[1])
		}
	}
}
