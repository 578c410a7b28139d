package survival

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/lab/topology"
)

// slicesOfService is the number of EndpointSlices that the backends are spread over.
const slicesOfService = 2

// Prefixes of the names of the manifest files. Each reordering selects the next ones, so
// that the files are read in a different order.
var prefixes = []string{"a", "m", "z", "k", "b", "y"}

// file returns the current name of a file.
func (s *system) file(what int) string {
	return fmt.Sprintf("%s-%d.yaml", prefixes[(s.naming+what*s.naming/2)%len(prefixes)], what)
}

// Files of the folder: the Service, the load balancers, then the slices.
const (
	serviceFile = iota
	balancersFile
	firstSliceFile
)

// writeAll writes every manifest with the current state.
func (s *system) writeAll() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	for what := range firstSliceFile + slicesOfService {
		if err := s.write(what); err != nil {
			return err
		}
	}
	return nil
}

// writeSlices writes the slices of the backends.
func (s *system) writeSlices() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	for i := range slicesOfService {
		if err := s.write(firstSliceFile + i); err != nil {
			return err
		}
	}
	return nil
}

// writeBalancers writes the manifest of the load balancers themselves.
func (s *system) writeBalancers() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.write(balancersFile)
}

// reorder renames every file and shuffles its content.
func (s *system) reorder() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	var before []string
	for what := range firstSliceFile + slicesOfService {
		before = append(before, s.file(what))
	}
	s.naming++
	s.shuffle++
	for what, old := range before {
		if err := s.Rename(0, old, s.file(what)); err != nil {
			return err
		}
		if err := s.write(what); err != nil {
			return err
		}
	}
	return nil
}

func (s *system) write(what int) error {
	var text string
	switch what {
	case serviceFile:
		text = s.serviceManifest()
	case balancersFile:
		text = s.balancersManifest()
	default:
		text = s.sliceManifest(what - firstSliceFile)
	}
	return s.Write(0, s.file(what), text)
}

func (s *system) serviceManifest() string {
	drawn, v := s.Services[0], s.variant
	annotations := []string{
		"forwarding-mode: " + v.method, "scheduler: " + v.scheduler, "connection-consistency: " + v.survival, "advertise-prefixes: " + drawn.Prefix.String(),
		"health-check: tcp", "health-check-interval: 1s", "health-check-timeout: 1s", "health-check-unhealthy-threshold: \"5\"", "health-check-healthy-threshold: \"1\"",
	}
	if v.encapsulation != "" {
		annotations = append(annotations, "encapsulation: "+v.encapsulation)
	}
	s.mix(len(annotations), func(i, j int) { annotations[i], annotations[j] = annotations[j], annotations[i] })
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata:
  name: %s
  namespace: bench
  creationTimestamp: "2026-01-01T00:00:00Z"
  annotations:
    fairlead.io/%s
spec:
  type: LoadBalancer
  loadBalancerIP: %s
  ports:
    - {port: %d, targetPort: %d}
`, drawn.Name, strings.Join(annotations, "\n    fairlead.io/"), drawn.VIP.Addr(), drawn.VIP.Port(), topology.ServerPort)
}

// endpoint is one line of a slice.
type endpoint struct {
	pod            topology.Pod
	draining       bool
	since, drained time.Time // drained is zero if it is not draining, or the time does not matter
}

// span returns the start time of the endpoint and, if known, the start of its draining.
func (e endpoint) span() string {
	text := e.pod.Addr.String() + "=" + e.since.UTC().Format(time.RFC3339Nano)
	if !e.drained.IsZero() {
		text += "/" + e.drained.UTC().Format(time.RFC3339Nano)
	}
	return text
}

func (e endpoint) String() string {
	conditions := "{ready: true}"
	if e.draining {
		conditions = "{ready: false, serving: true, terminating: true}"
	}
	return fmt.Sprintf("  - addresses: [%s]\n    nodeName: %s\n    targetRef: {kind: Pod, name: %s, namespace: bench}\n    conditions: %s\n",
		e.pod.Addr, e.pod.Node.Name, e.pod.Name, conditions)
}

// sliceManifest returns the i-th slice with its share of the backends, in the current
// order.
func (s *system) sliceManifest(i int) string {
	var endpoints []endpoint
	s.mu.Lock()
	for n, server := range s.servers {
		if n%slicesOfService == i && server.known && !server.gone {
			endpoints = append(endpoints, endpoint{server.pod, server.draining, server.since, server.drained})
		}
	}
	s.mu.Unlock()
	return s.endpointSlice(fmt.Sprintf("%s-%d", s.Services[0].Name, i), s.Services[0].Name, topology.ServerPort, endpoints)
}

// balancersService is the Service whose endpoints are the load balancers.
const balancersService = "balancers"

// balancersManifest returns the Service of the load balancers themselves, from which they
// learn which of them are leaving. It has no address, so nothing is forwarded to it.
func (s *system) balancersManifest() string {
	s.mu.Lock()
	var endpoints []endpoint
	for _, b := range s.balancers {
		endpoints = append(endpoints, endpoint{pod: b.pod, draining: b.leaving, since: b.since})
	}
	s.mu.Unlock()
	head := fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %s, namespace: bench}
spec:
  clusterIP: None
  ports:
    - {name: bgp, port: 179}
---
`, balancersService)
	return head + s.endpointSlice(balancersService+"-1", balancersService, 179, endpoints)
}

func (s *system) endpointSlice(name, of string, port int, endpoints []endpoint) string {
	s.mix(len(endpoints), func(i, j int) { endpoints[i], endpoints[j] = endpoints[j], endpoints[i] })
	var since, lines []string
	for _, e := range endpoints {
		since = append(since, e.span())
		lines = append(lines, e.String())
	}
	return fmt.Sprintf(`apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: %s
  namespace: bench
  labels: {kubernetes.io/service-name: %s}
  annotations:
    fairlead.io/backend-timestamps: %q
addressType: IPv4
ports:
  - {port: %d}
endpoints:
%s`, name, of, strings.Join(slices.Sorted(slices.Values(since)), ","), port, strings.Join(lines, ""))
}

// mix shuffles things into the current order, which stays the same until the next
// reordering.
func (s *system) mix(n int, swap func(i, j int)) {
	rand.New(rand.NewPCG(uint64(s.shuffle), 0)).Shuffle(n, swap)
}
