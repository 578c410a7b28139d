package migration

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/lab/cluster"
)

// service is the manifest of the web service. It is the same at both sites.
const service = `apiVersion: v1
kind: Service
metadata:
  name: web
  annotations: {fairlead.io/addresses: 192.0.2.80, fairlead.io/health-check: none}
spec: {type: LoadBalancer, ports: [{port: 80}]}
`

// slice lists the pods of one site. A cluster writes it itself.
const slice = `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-%s, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 80}]
endpoints:
`

// expose writes the service with the site's own pods.
func (s *site) expose() error {
	if err := s.write("web.yaml", service); err != nil {
		return err
	}
	return s.include(s, false)
}

// include writes the pods of a site, which may be leaving, as backends at this one.
func (s *site) include(of *site, leaving bool) error {
	var text strings.Builder
	fmt.Fprintf(&text, slice, of.name)
	for _, name := range of.names() {
		conditions := "{ready: true}"
		if leaving {
			conditions = "{ready: false, serving: true, terminating: true}"
		}
		fmt.Fprintf(&text, "- {addresses: [%s], nodeName: %s, conditions: %s}\n", of.servers[name], name, conditions)
	}
	return s.write("pods-"+of.name+".yaml", text.String())
}

func (s *site) write(file, text string) error {
	return cluster.ReplaceFile(filepath.Join(s.manifests, file), text)
}
