package demo

import (
	_ "embed"
	"strings"
	"text/template"

	"github.com/fairlead/fairlead/lab/paper"
)

//go:embed manifests.yaml.tmpl
var manifestText string

var manifestTemplate = template.Must(template.New("manifests").Parse(manifestText))

// writeManifests writes a service and its servers as they are now, once for
// its own balancers and once for the nodes, which care for all services.
func (c *system) writeManifests(service int) error {
	text, err := c.opts.manifests(c.Services[service], c.Servers(service), c.draining)
	if err != nil {
		return err
	}
	return c.Write(service, c.Services[service].Name+".yaml", text)
}

// manifests gives a service with its servers, of which some drain.
func (o Options) manifests(s *paper.Service, servers []paper.Pod, draining map[string]bool) (string, error) {
	type endpoint struct {
		Addr, Name, Node string
		Draining         bool
	}
	data := struct {
		Name, VIP, Prefix, Method, Scheduler string
		Port                                 uint16
		Endpoints                            []endpoint
	}{
		Name: s.Name, VIP: s.VIP.Addr().String(), Prefix: s.Prefix.String(), Port: paper.ServerPort,
		Method: o.Method, Scheduler: o.Scheduler,
	}
	for _, pod := range servers {
		data.Endpoints = append(data.Endpoints, endpoint{pod.Addr.String(), pod.Name, pod.Node.Name, draining[pod.Name]})
	}
	var text strings.Builder
	err := manifestTemplate.Execute(&text, data)
	return text.String(), err
}
