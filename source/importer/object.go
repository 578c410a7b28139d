package importer

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/source/object"
)

// document is a Service or an EndpointSlice, limited to the fields written here.
type document struct {
	APIVersion  string      `yaml:"apiVersion"`
	Kind        string      `yaml:"kind"`
	Metadata    meta        `yaml:"metadata"`
	Spec        *spec       `yaml:"spec,omitempty"`
	AddressType string      `yaml:"addressType,omitempty"`
	Ports       []port      `yaml:"ports,omitempty"`
	Endpoints   []endpoints `yaml:"endpoints,omitempty"`
}

type meta struct {
	Name        string            `yaml:"name"`
	Labels      map[string]string `yaml:"labels,omitempty"`
	Annotations map[string]string `yaml:"annotations,omitempty"`
}

type spec struct {
	Type            string          `yaml:"type"`
	SessionAffinity string          `yaml:"sessionAffinity,omitempty"`
	AffinityConfig  *affinityConfig `yaml:"sessionAffinityConfig,omitempty"`
	Ports           []port          `yaml:"ports"`
}

type affinityConfig struct {
	ClientIP struct {
		TimeoutSeconds int `yaml:"timeoutSeconds"`
	} `yaml:"clientIP"`
}

type port struct {
	Port     uint16 `yaml:"port"`
	Protocol string `yaml:"protocol,omitempty"`
}

type endpoints struct {
	Addresses []string `yaml:"addresses,flow"`
}

// manifest writes a Service, and one EndpointSlice for each family and port of its servers.
func (s *lvsService) manifest() (Manifest, error) {
	m := Manifest{Name: s.name, At: s.v.At}
	objects := []document{s.service()}
	for i, of := range s.slices() {
		objects = append(objects, s.slice(i+1, of))
	}
	for _, o := range objects {
		text, err := Encode(o)
		if err != nil {
			return m, err
		}
		m.Objects = append(m.Objects, text)
	}
	return m, nil
}

func (s *lvsService) service() document {
	o := document{APIVersion: "v1", Kind: "Service", Metadata: meta{Name: s.name, Annotations: s.annotations()}}
	o.Spec = &spec{Type: "LoadBalancer", Ports: []port{s.port(s.first)}}
	if s.affinity > 0 {
		o.Spec.SessionAffinity = "ClientIP"
		o.Spec.AffinityConfig = &affinityConfig{}
		o.Spec.AffinityConfig.ClientIP.TimeoutSeconds = int(s.affinity / time.Second)
	}
	return o
}

// port returns a port of the Service or its slices. An entire address has no port, but a
// Service requires one.
func (s *lvsService) port(number uint16) port {
	if s.protocol == service.AnyProtocol {
		return port{Port: 1}
	}
	return port{number, s.protocol.String()}
}

func (s *lvsService) annotations() map[string]string {
	all := map[string]string{
		object.AnnotationAddresses:      join(s.addrs, netip.Addr.String),
		object.AnnotationForwardingMode: string(s.method),
		object.AnnotationScheduler:      string(s.scheduler),
	}
	if s.encapsulation != "" {
		all[object.AnnotationEncapsulation] = string(s.encapsulation)
	}
	switch {
	case s.protocol == service.AnyProtocol:
		all[object.AnnotationPortRanges] = "all"
	case s.last != 0:
		all[object.AnnotationPortRanges] = fmt.Sprintf("%d-%d", s.first, s.last)
	}
	limited := slices.DeleteFunc(slices.Clone(s.servers), func(r Server) bool { return r.MaxConns == 0 })
	slices.SortFunc(limited, func(a, b Server) int { return a.Addr.Compare(b.Addr) })
	limited = slices.CompactFunc(limited, func(a, b Server) bool { return a.Addr == b.Addr })
	if len(limited) > 0 {
		all[object.AnnotationMaxConnections] = join(limited, func(r Server) string { return fmt.Sprintf("%s=%d", r.Addr, r.MaxConns) })
	}
	s.annotateCheck(all)
	return all
}

// annotateCheck writes all health check settings, because LVS's defaults differ from
// Fairlead's.
func (s *lvsService) annotateCheck(all map[string]string) {
	if !s.checked {
		all[object.AnnotationHealthCheck] = string(service.CheckNone)
		return
	}
	h := s.check
	all[object.AnnotationHealthCheck] = string(h.Kind)
	all[object.AnnotationHealthCheckInterval] = h.Interval.String()
	all[object.AnnotationHealthCheckTimeout] = h.Timeout.String()
	all[object.AnnotationHealthCheckHealthyThreshold] = fmt.Sprint(h.Rise)
	all[object.AnnotationHealthCheckUnhealthyThreshold] = fmt.Sprint(h.Fall)
	all[object.AnnotationPanicMode] = "disabled"
	if h.Port != 0 {
		all[object.AnnotationHealthCheckPort] = fmt.Sprint(h.Port)
	}
	if h.Kind == service.CheckHTTP {
		all[object.AnnotationHealthCheckPath] = h.Path
	}
	if h.Drain > 0 {
		all[object.AnnotationHealthCheckDrainTimeout] = h.Drain.String()
	}
	if h.Host != "" {
		all[object.AnnotationHealthCheckHost] = h.Host
	}
}

// slices groups the servers by port and family.
func (s *lvsService) slices() (parts [][]Server) {
	servers := slices.Clone(s.servers)
	slices.SortStableFunc(servers, func(a, b Server) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Addr.BitLen(), b.Addr.BitLen()))
	})
	for _, r := range servers {
		last := len(parts) - 1
		if last < 0 || parts[last][0].Port != r.Port || parts[last][0].Addr.Is6() != r.Addr.Is6() {
			parts = append(parts, nil)
			last++
		}
		parts[last] = append(parts[last], r)
	}
	return parts
}

func (s *lvsService) slice(number int, servers []Server) document {
	o := document{
		APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice", AddressType: "IPv4",
		Metadata: meta{Name: fmt.Sprintf("%s-%d", s.name, number), Labels: map[string]string{"kubernetes.io/service-name": s.name}},
		Ports:    []port{s.port(servers[0].Port)},
	}
	if servers[0].Addr.Is6() {
		o.AddressType = "IPv6"
	}
	weighty := slices.DeleteFunc(slices.Clone(servers), func(r Server) bool { return r.Weight == 1 })
	if len(weighty) > 0 {
		o.Metadata.Annotations = map[string]string{
			object.AnnotationWeights: join(weighty, func(r Server) string { return fmt.Sprintf("%s=%d", r.Addr, r.Weight) }),
		}
	}
	for _, r := range servers {
		o.Endpoints = append(o.Endpoints, endpoints{[]string{r.Addr.String()}})
	}
	return o
}

func join[T any](values []T, text func(T) string) string {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = text(v)
	}
	return strings.Join(words, ",")
}
