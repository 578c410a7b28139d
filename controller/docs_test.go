package controller_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/source"
	"github.com/fairlead/fairlead/source/gateway"
)

// kinds are the types of objects in documentation pages and manifests.
var kinds = map[string]func() any{
	"AddressPool":         func() any { return &v1alpha1.AddressPool{} },
	"BGPPeer":             func() any { return &v1alpha1.BGPPeer{} },
	"Advertisement":       func() any { return &v1alpha1.Advertisement{} },
	"VirtualNetwork":      func() any { return &v1alpha1.VirtualNetwork{} },
	"Quarantine":          func() any { return &v1alpha1.Quarantine{} },
	"Secret":              func() any { return &corev1.Secret{} },
	"Service":             func() any { return &corev1.Service{} },
	"Namespace":           func() any { return &corev1.Namespace{} },
	"ServiceAccount":      func() any { return &corev1.ServiceAccount{} },
	"Deployment":          func() any { return &appsv1.Deployment{} },
	"PodDisruptionBudget": func() any { return &policyv1.PodDisruptionBudget{} },
	"DaemonSet":           func() any { return &appsv1.DaemonSet{} },
	"ClusterRole":         func() any { return &rbacv1.ClusterRole{} },
	"ClusterRoleBinding":  func() any { return &rbacv1.ClusterRoleBinding{} },
	"Role":                func() any { return &rbacv1.Role{} },
	"RoleBinding":         func() any { return &rbacv1.RoleBinding{} },
	"GatewayClass":        func() any { return &gateway.Class{} },
	"Gateway":             func() any { return &gateway.Gateway{} },
	"TCPRoute":            func() any { return &gateway.Route{} },
	"Kustomization":       func() any { return &kustomization{} },

	"NetworkAttachmentDefinition": func() any { return &attachmentDefinition{} },
}

// kustomization has the fields of a kustomization that are used here.
type kustomization struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Resources  []string `json:"resources"`
	Images     []struct {
		Name    string `json:"name"`
		NewName string `json:"newName"`
		NewTag  string `json:"newTag"`
	} `json:"images"`
	Patches []struct {
		Target struct {
			Kind string `json:"kind"`
			Name string `json:"name"`
		} `json:"target"`
		Patch string `json:"patch"`
	} `json:"patches"`
}

// attachmentDefinition is a NetworkAttachmentDefinition; package cni checks its config.
type attachmentDefinition struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]string `json:"metadata"`
	Spec       struct {
		Config string `json:"config"`
	} `json:"spec"`
}

// checkObjects decodes objects strictly: only fields of their types. A document without a
// kind is values for the chart.
func checkObjects(text string, values map[string]any) error {
	var errs []error
	for object := range strings.SplitSeq(text, "\n---\n") {
		var kind struct{ Kind string }
		if err := yaml.Unmarshal([]byte(object), &kind); err != nil {
			return err
		}
		made := kinds[kind.Kind]
		switch {
		case kind.Kind == "" && regexp.MustCompile(`(?m)^[^#\n]`).MatchString(object):
			var set map[string]any
			errs = append(errs, yaml.UnmarshalStrict([]byte(object), &set), known("", set, values))
		case kind.Kind == "": // only comments
		case made == nil:
			errs = append(errs, fmt.Errorf("kind %q: nothing checks it", kind.Kind))
		default:
			errs = append(errs, yaml.UnmarshalStrict([]byte(object), made()))
		}
	}
	return errors.Join(errs...)
}

// known finds values that the chart does not have. Below an empty value of the chart,
// anything is accepted.
func known(path string, set, values map[string]any) error {
	var errs []error
	for name, value := range set {
		has, found := values[name]
		if !found {
			errs = append(errs, fmt.Errorf("%s%s: no value of the chart", path, name))
			continue
		}
		below, isMap := value.(map[string]any)
		if of, ok := has.(map[string]any); ok && isMap && len(of) > 0 {
			errs = append(errs, known(path+name+".", below, of))
		}
	}
	return errors.Join(errs...)
}

func chartValues(t *testing.T) (values map[string]any) {
	t.Helper()
	text, err := os.ReadFile("../deploy/helm/fairlead/values.yaml")
	if err == nil {
		err = yaml.UnmarshalStrict(text, &values)
	}
	if err != nil || len(values) == 0 {
		t.Fatalf("the chart's values %v: %v", maps.Keys(values), err)
	}
	return values
}

// valuesSchema is the relevant part of a JSON schema.
type valuesSchema struct {
	Properties           map[string]*valuesSchema `json:"properties"`
	AdditionalProperties any                      `json:"additionalProperties"`
}

// missing returns what only one of a schema and the chart's values has.
func (s *valuesSchema) missing(path string, values map[string]any) (wrong []string) {
	if closed, is := s.AdditionalProperties.(bool); !is || closed {
		return []string{path + ": takes any name"}
	}
	for name := range values {
		if s.Properties[name] == nil {
			wrong = append(wrong, path+name+": not in the schema")
		}
	}
	for name, of := range s.Properties {
		value, has := values[name]
		below, isMap := value.(map[string]any)
		switch {
		case !has && path+name != "global": // built into Helm
			wrong = append(wrong, path+name+": not among the values")
		case isMap && len(of.Properties) > 0 && name != "resources":
			wrong = append(wrong, of.missing(path+name+".", below)...)
		}
	}
	return wrong
}

// TestTheChartsSchemaIsWhole checks that the schema has exactly the chart's values.
func TestTheChartsSchemaIsWhole(t *testing.T) {
	text, err := os.ReadFile("../deploy/helm/fairlead/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var s valuesSchema
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	values := chartValues(t)
	for _, wrong := range s.missing("", values) {
		t.Error(wrong)
	}
	delete(s.Properties, "bgp")
	values["agent"].(map[string]any)["king"] = 1
	if wrong := s.missing("", values); len(wrong) != 2 {
		t.Errorf("a value and a property too many are %q", wrong)
	}
}

// TestClusterSnippetsInThePagesAreRight decodes the snippets for a cluster in documentation
// pages strictly. cmd/fairlead checks Services with their backends, and networks, with
// their consumers; lab/sim/scenario checks scenarios of the simulator.
func TestClusterSnippetsInThePagesAreRight(t *testing.T) {
	values, checked := chartValues(t), 0
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, "../README.md") {
		if name := filepath.Base(page); name == "scenarios.md" || name == "vdn.md" {
			continue
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)\n```").FindAllSubmatchIndex(text, -1) {
			snippet := string(text[m[2]:m[3]])
			if strings.Contains(snippet, "kind: EndpointSlice") || strings.Contains(snippet, "\njobs:") || strings.Contains(snippet, "\nscrape_configs:") { // of a CI system, of Prometheus
				continue
			}
			checked++
			if err := checkObjects(snippet, values); err != nil {
				t.Errorf("%s:%d: %v", page, 1+bytes.Count(text[:m[2]], []byte("\n")), err)
			}
		}
	}
	if checked == 0 {
		t.Error("no page shows anything for a cluster")
	}
	for _, wrong := range []string{"kind: Depolyment\n", "kind: Service\nspec: {port: 1}\n", "bgp: {peer: 1}\n", "kind: AddressPool\nspec: {address: []}\n"} {
		if checkObjects(wrong, values) == nil {
			t.Errorf("%q passes", wrong)
		}
	}
}

// TestBalancersKnowEachOther checks that the agents' configured Service exists without a
// cluster IP and selects exactly those pods, including unready ones, with addresses of both
// families, and that backends accept packets from its endpoints.
func TestBalancersKnowEachOther(t *testing.T) {
	for _, file := range []string{"../deploy/manifests/agent.yaml", "../deploy/manifests/proxy/agent.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var set appsv1.DaemonSet
		services := map[string]*corev1.Service{}
		for object := range strings.SplitSeq(string(text), "\n---\n") {
			var s corev1.Service
			into := any(&set)
			if strings.Contains(object, "\nkind: Service\n") {
				into = &s
			}
			if err := yaml.Unmarshal([]byte(object), into); err != nil {
				t.Fatal(err)
			}
			services[s.Namespace+"/"+s.Name] = &s
		}
		balancers := ""
		var from source.Selector
		for _, arg := range set.Spec.Template.Spec.Containers[0].Args {
			if name, is := strings.CutPrefix(arg, "--balancers="); is {
				balancers = name
			}
			if text, is := strings.CutPrefix(arg, "--accept-from="); is {
				if from, err = source.ParseSelector(text); err != nil {
					t.Error(err)
				}
			}
		}
		s := services[balancers]
		if s == nil || s.Spec.ClusterIP != corev1.ClusterIPNone || !s.Spec.PublishNotReadyAddresses || len(s.Spec.Selector) == 0 ||
			!labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(set.Spec.Template.Labels)) {
			t.Errorf("%s: --balancers=%s is %+v; the pods have %v", file, balancers, s, set.Spec.Template.Labels)
		}
		if policy := s.Spec.IPFamilyPolicy; policy == nil || *policy != corev1.IPFamilyPolicyPreferDualStack || !from.Selects(s.Namespace, s.Labels) {
			t.Errorf("%s: --accept-from=%s does not select both families of %+v", file, from, s)
		}
	}
}

// TestControllersOfNetworksAreSeveral checks that with etcd there are three controllers,
// spread out, of which one at a time may be evicted, and that nodes report to each.
func TestControllersOfNetworksAreSeveral(t *testing.T) {
	text, err := os.ReadFile("../deploy/manifests/vdn/vdn-etcd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all appsv1.Deployment
	var nodes appsv1.DaemonSet
	var budget policyv1.PodDisruptionBudget
	services := map[string]*corev1.Service{}
	for object := range strings.SplitSeq(string(text), "\n---\n") {
		var s corev1.Service
		into, kind := map[string]any{"Deployment": &all, "DaemonSet": &nodes, "PodDisruptionBudget": &budget, "Service": &s}, ""
		for k := range into {
			if strings.Contains("\n"+object, "\nkind: "+k+"\n") {
				kind = k
			}
		}
		if kind == "" {
			continue
		}
		if err := yaml.Unmarshal([]byte(object), into[kind]); err != nil {
			t.Fatal(err)
		}
		services[s.Name] = &s
	}
	pods := labels.Set(all.Spec.Template.Labels)
	affinity := all.Spec.Template.Spec.Affinity
	if *all.Spec.Replicas != 3 || budget.Spec.MaxUnavailable.IntValue() != 1 || !labels.SelectorFromSet(budget.Spec.Selector.MatchLabels).Matches(pods) ||
		affinity == nil || !labels.SelectorFromSet(affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm.LabelSelector.MatchLabels).Matches(pods) {
		t.Errorf("%d replicas, budget %+v, affinity %+v", *all.Spec.Replicas, budget.Spec, affinity)
	}
	for _, arg := range nodes.Spec.Template.Spec.Containers[0].Args {
		name, is := strings.CutPrefix(arg, "--controller=https://")
		if !is {
			continue
		}
		s := services[strings.Split(name, ".")[0]]
		if s == nil || s.Spec.ClusterIP != corev1.ClusterIPNone || !labels.SelectorFromSet(s.Spec.Selector).Matches(pods) {
			t.Errorf("nodes report to %s, which is %+v", name, s)
		}
		return
	}
	t.Error("nodes have no controller")
}

// TestPlainManifestsAreRight checks that objects only have fields of Kubernetes' types.
// TestController creates those for admission in an API server.
func TestPlainManifestsAreRight(t *testing.T) {
	for _, pattern := range []string{"kustomization.yaml", "manifests/*.yaml", "manifests/*/*.yaml"} {
		files, err := filepath.Glob("../deploy/" + pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no files %s: %v", pattern, err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if filepath.Base(f) == "admission.yaml" {
				continue
			}
			if err := checkObjects(string(text), nil); err != nil {
				t.Errorf("%s: %v", f, err)
			}
		}
	}
}
