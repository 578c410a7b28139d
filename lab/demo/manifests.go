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
	s := c.Services[service]
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
		Method: c.opts.Method, Scheduler: c.opts.Scheduler,
	}
	for _, pod := range c.Servers(service) {
		data.Endpoints = append(data.Endpoints, endpoint{pod.Addr.String(), pod.Name, pod.Node.Name, c.draining[pod.Name]})
	}
	var text strings.Builder
	if err := manifestTemplate.Execute(&text, data); err != nil {
		return err
	}
	return c.Write(service, s.Name+".yaml", text.String())
}
