package cluster

import (
	_ "embed"
	"strings"
	"text/template"

	"github.com/fairlead/fairlead/lab/topology"
)

// EchoPort is a service's port for datagrams, and that of its backends.
const EchoPort = 7

//go:embed manifest.yaml.tmpl
var manifestText string

var manifestTemplate = template.Must(template.New("manifest").Parse(manifestText))

// Manifest describes a service, except for its backends.
type Manifest struct {
	// Namespace is the service's Kubernetes namespace.
	Namespace, Method, Scheduler string
	// Echo adds EchoPort.
	Echo bool
	// Draining are the backends that accept no new connections.
	Draining map[string]bool
}

// Text returns the manifest of a service with its backends.
func (m Manifest) Text(s *topology.Service, servers []topology.Pod) (string, error) {
	type endpoint struct {
		Addr, Name, Node string
		Draining         bool
	}
	data := struct {
		Manifest
		Name, VIP, Prefix string
		Port, EchoPort    uint16
		Endpoints         []endpoint
	}{
		Manifest: m, Name: s.Name, VIP: s.VIP.Addr().String(), Prefix: s.Prefix.String(), Port: topology.ServerPort, EchoPort: EchoPort,
	}
	for _, pod := range servers {
		data.Endpoints = append(data.Endpoints, endpoint{pod.Addr.String(), pod.Name, pod.Node.Name, m.Draining[pod.Name]})
	}
	var text strings.Builder
	err := manifestTemplate.Execute(&text, data)
	return text.String(), err
}

// WriteManifest writes a service and its current backends, once for its own load
// balancers and once for the nodes, which handle all services.
func (c *Cluster) WriteManifest(service int, m Manifest) error {
	s := c.Services[service]
	text, err := m.Text(s, c.Servers(service))
	if err != nil {
		return err
	}
	return c.Write(service, s.Name+".yaml", text)
}
