package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/cmd/internal/clitest"
	dpproxy "github.com/fairlead/fairlead/dataplane/proxy"
	"github.com/fairlead/fairlead/dataplane/xdp"
)

// container contains the fields of a container in a manifest that are checked.
type container struct {
	Name           string
	Args           []string
	ReadinessProbe struct{ Exec struct{ Command []string } } `yaml:"readinessProbe"`
}

// containers returns those of all pods in a manifest file.
func containers(t *testing.T, path string) (all []container) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for objects := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var o struct {
			Spec struct {
				Template struct {
					Spec struct {
						Containers     []container
						InitContainers []container `yaml:"initContainers"`
					}
				}
			}
		}
		err := objects.Decode(&o)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all = append(append(all, o.Spec.Template.Spec.InitContainers...), o.Spec.Template.Spec.Containers...)
	}
}

// TestManifestsStartWhatThereIs checks that every container's arguments and readiness
// probe are valid command lines.
func TestManifestsStartWhatThereIs(t *testing.T) {
	checked := 0
	for _, pattern := range []string{"*.yaml", "*/*.yaml"} {
		files, err := filepath.Glob(filepath.Join(clitest.Repository, "deploy/manifests", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			for _, c := range containers(t, f) {
				checked++
				if err := program.CheckArgs(c.Args); err != nil {
					t.Errorf("%s: container %s: %v", f, c.Name, err)
				}
				if probe := c.ReadinessProbe.Exec.Command; len(probe) > 0 {
					if err := program.CheckArgs(probe[1:]); err != nil || probe[0] != "/fairlead" {
						t.Errorf("%s: container %s: probe %q: %v", f, c.Name, probe, err)
					}
				}
			}
		}
	}
	if checked == 0 {
		t.Error("no manifest has a container")
	}
}

// TestTheChartSizesAsTheAgentDoes checks that an agent from the chart and one without it
// can take over each other's maps.
func TestTheChartSizesAsTheAgentDoes(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(clitest.Repository, "deploy/helm/fairlead/values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	type sizes struct {
		MaxFrontends int `yaml:"maxFrontends"`
		MaxBackends  int `yaml:"maxBackends"`
		MaxTargets   int `yaml:"maxTargets"`
	}
	var values struct{ Agent, Proxy sizes }
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	if want := (sizes{MaxFrontends: xdp.DefaultMaxFrontends, MaxBackends: xdp.DefaultMaxBackends}); values.Agent != want {
		t.Errorf("agent has %+v, an agent by itself %+v", values.Agent, want)
	}
	if want := (sizes{MaxFrontends: dpproxy.DefaultMaxFrontends, MaxTargets: dpproxy.DefaultMaxTargets}); values.Proxy != want {
		t.Errorf("proxy has %+v, an agent by itself %+v", values.Proxy, want)
	}
}
