package object

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/suggest"
)

// Annotations of a Service for settings that Kubernetes has no field for. All other
// annotations that begin with AnnotationPrefix are rejected.
const (
	AnnotationPrefix = "fairlead.io/"

	// AnnotationForwardingMode is the forwarding mode: nat, fullnat (the default with
	// AnnotationNetwork), dsr-nat, dr or tunnel (the default without).
	AnnotationForwardingMode = AnnotationPrefix + "forwarding-mode"
	// AnnotationEncapsulation is the tunnel encapsulation: ipip (the default) or gue.
	AnnotationEncapsulation = AnnotationPrefix + "encapsulation"
	// AnnotationNetwork is the Multus network, "namespace/name", or "name" for one in the
	// Service's namespace, on which the backends are reached instead of the cluster
	// network.
	AnnotationNetwork = AnnotationPrefix + "network"
	// AnnotationScheduler is maglev (the default), rr, wrr, lc, wlc, sh, dh or
	// p2c.
	AnnotationScheduler = AnnotationPrefix + "scheduler"
	// AnnotationConnectionConsistency is how flows stay with their backends when the
	// backends change: second-chance, flow-table or hash-only. The default is the first of
	// these that the other settings allow, but hash-only for forwarding mode dr.
	AnnotationConnectionConsistency = AnnotationPrefix + "connection-consistency"
	// AnnotationMaglevTableSize is the size of the Maglev table, a prime.
	AnnotationMaglevTableSize = AnnotationPrefix + "maglev-table-size"
	// AnnotationPanicMode is enabled (the default) or disabled: whether all backends stay
	// in service when every one fails its health checks.
	AnnotationPanicMode = AnnotationPrefix + "panic-mode"

	// AnnotationDedicated is "true" for a Service that only its dedicated balancers serve.
	AnnotationDedicated = AnnotationPrefix + "dedicated"

	// AnnotationHealthCheck is tcp, http or none. The default is tcp, but none for a
	// Service that has only UDP ports and no health check port.
	AnnotationHealthCheck = AnnotationPrefix + "health-check"
	// AnnotationHealthCheckPath is the path of HTTP checks; "/" by default.
	AnnotationHealthCheckPath = AnnotationPrefix + "health-check-path"
	// AnnotationHealthCheckHost is the Host header of HTTP checks; the backend's address by
	// default.
	AnnotationHealthCheckHost = AnnotationPrefix + "health-check-host"
	// AnnotationHealthCheckPort is probed instead of each backend's own port.
	AnnotationHealthCheckPort = AnnotationPrefix + "health-check-port"
	// AnnotationHealthCheckInterval is the time between two probes, as a Go duration; 1s by
	// default.
	AnnotationHealthCheckInterval = AnnotationPrefix + "health-check-interval"
	// AnnotationHealthCheckTimeout is the timeout of a probe; 500ms by default, or the
	// interval if that is shorter.
	AnnotationHealthCheckTimeout = AnnotationPrefix + "health-check-timeout"
	// AnnotationHealthCheckHealthyThreshold is the number of consecutive successful probes
	// that make a backend healthy; 2 by default.
	AnnotationHealthCheckHealthyThreshold = AnnotationPrefix + "health-check-healthy-threshold"
	// AnnotationHealthCheckUnhealthyThreshold is the number of consecutive failed probes
	// that make a backend unhealthy; 2 by default.
	AnnotationHealthCheckUnhealthyThreshold = AnnotationPrefix + "health-check-unhealthy-threshold"
	// AnnotationHealthCheckDrainTimeout is how long an unhealthy backend keeps its
	// connections, except for UDP; 30s by default, 0s to move them immediately.
	AnnotationHealthCheckDrainTimeout = AnnotationPrefix + "health-check-drain-timeout"

	// AnnotationAddresses are the VIPs, separated by commas, if status.loadBalancer.ingress
	// has none.
	AnnotationAddresses = AnnotationPrefix + "addresses"
	// AnnotationAddressPool names the only pools, separated by commas, from which the
	// controller may assign addresses to the Service. Like the sharing key, it has no
	// effect if no controller assigns addresses.
	AnnotationAddressPool = AnnotationPrefix + "address-pool"
	// AnnotationAddressSharingKey lets Services with the same key share an address if their
	// ports do not overlap.
	AnnotationAddressSharingKey = AnnotationPrefix + "address-sharing-key"
	// AnnotationAdvertisePrefixes are prefixes, separated by commas, that are advertised
	// instead of the /32 or /128 of the VIPs that they contain.
	AnnotationAdvertisePrefixes = AnnotationPrefix + "advertise-prefixes"
	// AnnotationWeights are the backends' weights, "172.16.1.2=3,172.16.1.3=0". The default
	// is 1; 0 drains. On an EndpointSlice it takes precedence over the Service's.
	AnnotationWeights = AnnotationPrefix + "weights"
	// AnnotationMaxConnections is the number of connections at which a backend gets no new
	// ones: one number for all, or "172.16.1.2=100,172.16.1.3=500".
	AnnotationMaxConnections = AnnotationPrefix + "max-connections"

	// AnnotationPortRanges turns ports into ranges that begin there, "rtp=10000-19999"
	// (without the name for a Service's only port), or makes the Service serve entire
	// addresses: "all". Backends get packets on the port that the client addressed.
	AnnotationPortRanges = AnnotationPrefix + "port-ranges"
	// AnnotationDenySourceRanges are prefixes of clients that are not served, separated by
	// commas, even if spec.loadBalancerSourceRanges has them.
	AnnotationDenySourceRanges = AnnotationPrefix + "deny-source-ranges"
	// AnnotationRateLimits limits the packets and the new flows per second, per client and
	// in total: "client-pps=1000,client-cps=50,pps=100000,cps=5000", each of them optional.
	AnnotationRateLimits = AnnotationPrefix + "rate-limits"
	// AnnotationSYNProtection is when load balancers protect the Service against SYN floods
	// with spoofed sources: "off", "auto" (during a flood), "always".
	AnnotationSYNProtection = AnnotationPrefix + "syn-protection"

	// AnnotationBackendTimestamps on an EndpointSlice is when its endpoints began to take
	// flows, "172.16.1.2=2026-01-02T15:04:05Z", and when one began to drain,
	// "172.16.1.2=2026-01-02T15:04:05Z/2026-01-03T15:04:05Z". The default is the slice's
	// creationTimestamp. In a cluster the controller writes it, using Ages.
	AnnotationBackendTimestamps = AnnotationPrefix + "backend-timestamps"
)

// annotation returns the field path of an annotation.
func annotation(name string) string { return "metadata.annotations[" + name + "]" }

// settings are the parsed annotations of a Service.
type settings struct {
	method        service.Method
	network       string
	encapsulation service.Encapsulation
	scheduler     service.Scheduler
	survival      service.Survival
	ringSize      int
	panic         bool
	dedicated     bool
	health        service.HealthCheck
	addresses     []netip.Addr
	pools         []string
	sharingKey    string
	prefixes      []netip.Prefix
	weights       map[netip.Addr]uint32
	maxConns      maxConns
	ranges        portRanges
	deny          []netip.Prefix
	limits        service.Limits
	protection    service.SYNProtection
}

// setters parse the annotations of a Service. They check only what the model cannot
// represent; Service.Validate checks the rest.
var setters = map[string]func(*settings, string) error{
	AnnotationForwardingMode: func(s *settings, v string) error { s.method = service.Method(v); return nil },
	AnnotationEncapsulation: func(s *settings, v string) error {
		s.encapsulation = service.Encapsulation(v)
		return nil
	},
	AnnotationNetwork:                       func(s *settings, v string) (err error) { s.network, err = parseNetwork(v); return err },
	AnnotationScheduler:                     func(s *settings, v string) error { s.scheduler = service.Scheduler(v); return nil },
	AnnotationConnectionConsistency:         func(s *settings, v string) error { s.survival = service.Survival(v); return nil },
	AnnotationMaglevTableSize:               func(s *settings, v string) error { return setInt(&s.ringSize, v) },
	AnnotationPanicMode:                     func(s *settings, v string) error { return setEither(&s.panic, v, "enabled", "disabled") },
	AnnotationDedicated:                     func(s *settings, v string) error { return setEither(&s.dedicated, v, "true", "false") },
	AnnotationHealthCheck:                   func(s *settings, v string) error { s.health.Kind = service.CheckKind(v); return nil },
	AnnotationHealthCheckPath:               func(s *settings, v string) error { s.health.Path = v; return nil },
	AnnotationHealthCheckHost:               func(s *settings, v string) error { s.health.Host = v; return nil },
	AnnotationHealthCheckPort:               func(s *settings, v string) error { return setPort(&s.health.Port, v) },
	AnnotationHealthCheckInterval:           func(s *settings, v string) error { return setDuration(&s.health.Interval, v) },
	AnnotationHealthCheckTimeout:            func(s *settings, v string) error { return setDuration(&s.health.Timeout, v) },
	AnnotationHealthCheckHealthyThreshold:   func(s *settings, v string) error { return setInt(&s.health.Rise, v) },
	AnnotationHealthCheckUnhealthyThreshold: func(s *settings, v string) error { return setInt(&s.health.Fall, v) },
	AnnotationHealthCheckDrainTimeout:       func(s *settings, v string) error { return setDuration(&s.health.Drain, v) },
	AnnotationAddresses:                     func(s *settings, v string) error { return setList(&s.addresses, v, parseAddr) },
	AnnotationAddressPool:                   func(s *settings, v string) error { return setList(&s.pools, v, parsePool) },
	AnnotationAddressSharingKey:             func(s *settings, v string) error { s.sharingKey = v; return nil },
	AnnotationAdvertisePrefixes:             func(s *settings, v string) error { return setList(&s.prefixes, v, parsePrefix) },
	AnnotationWeights:                       func(s *settings, v string) (err error) { s.weights, err = parseWeights(v); return err },
	AnnotationMaxConnections:                func(s *settings, v string) (err error) { s.maxConns, err = parseMaxConns(v); return err },
	AnnotationPortRanges:                    func(s *settings, v string) (err error) { s.ranges, err = parseRanges(v); return err },
	AnnotationDenySourceRanges:              func(s *settings, v string) error { return setList(&s.deny, v, parsePrefix) },
	AnnotationRateLimits:                    func(s *settings, v string) (err error) { s.limits, err = parseLimits(v); return err },
	AnnotationSYNProtection:                 func(s *settings, v string) error { s.protection = service.SYNProtection(v); return nil },
}

// Annotations returns the names of all annotations for a Service, sorted.
func Annotations() []string { return slices.Sorted(maps.Keys(setters)) }

// readSettings parses the annotations of a Service, starting from the defaults.
func readSettings(annotations map[string]string) (settings, []Fault) {
	s := settings{
		method: service.DefaultMethod, scheduler: service.DefaultScheduler, ringSize: service.DefaultRingSize,
		panic: true, health: service.DefaultHealthCheck, protection: service.DefaultSYNProtection,
	}
	faults := unknownAnnotations(annotations, Annotations(), func(name string) string {
		if name == AnnotationBackendTimestamps {
			return " of a Service; it belongs on its EndpointSlices"
		}
		return ""
	})
	for _, name := range Annotations() {
		value, ok := annotations[name]
		if !ok {
			continue
		}
		if err := setters[name](&s, value); err != nil {
			faults = append(faults, Fault{annotation(name), err.Error()})
		}
	}
	if _, ok := annotations[AnnotationHealthCheckTimeout]; !ok && s.health.Interval > 0 {
		s.health.Timeout = min(s.health.Timeout, s.health.Interval)
	}
	faults = append(faults, s.settleMethod(annotations)...)
	if _, ok := annotations[AnnotationEncapsulation]; !ok && s.method == service.Tunnel {
		s.encapsulation = service.DefaultEncapsulation
	}
	return s, faults
}

// settleMethod sets the forwarding mode of a Service whose backends are on a secondary
// network. Their devices there (macvlan, host-device, SR-IOV) are in the pods' network
// namespaces, where the DSR agent that tunnel and dsr-nat require cannot run.
func (s *settings) settleMethod(annotations map[string]string) []Fault {
	if s.network == "" {
		return nil
	}
	if _, asked := annotations[AnnotationForwardingMode]; !asked {
		s.method = service.FullNAT
	}
	if s.method != service.Tunnel && s.method != service.DSRNAT {
		return nil
	}
	return []Fault{{annotation(AnnotationForwardingMode), fmt.Sprintf("%s needs the DSR agent at the backends' devices, which on network %q are in the pods' own namespaces; want %s, %s or %s",
		s.method, s.network, service.FullNAT, service.NAT, service.DR)}}
}

// settleCheck sets the default health check: a check uses TCP, so a Service without a TCP
// port has none.
func (s *settings) settleCheck(annotations map[string]string, ports []listenerPort) (faults []Fault) {
	_, asked := annotations[AnnotationHealthCheck]
	_, port := annotations[AnnotationHealthCheckPort]
	isTCP := func(p listenerPort) bool { return p.protocol == service.TCP && p.last == 0 }
	if !asked && !port && !slices.ContainsFunc(ports, isTCP) {
		s.health.Kind = service.CheckNone
	}
	for _, name := range []string{AnnotationHealthCheckPath, AnnotationHealthCheckHost} {
		if _, ok := annotations[name]; ok && s.health.Kind != service.CheckHTTP {
			faults = append(faults, Fault{annotation(name),
				fmt.Sprintf("has no meaning for a %s check; set %s to http", s.health.Kind, AnnotationHealthCheck)})
		}
	}
	return faults
}

// unknownAnnotations rejects unknown annotations with our prefix. hint returns a specific
// fix for a name, if there is one.
func unknownAnnotations(annotations map[string]string, known []string, hint func(name string) string) (faults []Fault) {
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		switch {
		case slices.Contains(known, name):
		case strings.HasPrefix(name, AnnotationPrefix):
			fix := cmp.Or(hint(name), suggest.DidYouMean(name, known), "; Fairlead has "+strings.Join(known, ", "))
			faults = append(faults, Fault{annotation(name), "unknown annotation" + fix})
		default:
			if meant := misspelt(name, known); meant != "" {
				faults = append(faults, Fault{annotation(name), fmt.Sprintf("unknown annotation; did you mean %q?", meant)})
			}
		}
	}
	return faults
}

// misspelt returns the annotation that a name with another prefix was probably meant to be:
// one that differs in case, or in a few characters of our prefix.
func misspelt(name string, known []string) string {
	for _, k := range known {
		if strings.EqualFold(name, k) {
			return k
		}
	}
	domain, rest, _ := strings.Cut(name, "/")
	ours := strings.TrimSuffix(AnnotationPrefix, "/")
	if strings.EqualFold(domain, ours) {
		return cmp.Or(suggest.Nearest(AnnotationPrefix+rest, known), AnnotationPrefix+rest)
	}
	if slices.Contains(known, AnnotationPrefix+rest) && suggest.Nearest(domain, []string{ours}) != "" {
		return AnnotationPrefix + rest
	}
	return ""
}

// modelFields maps fields of the model to where they are set.
var modelFields = map[string]string{
	"method": annotation(AnnotationForwardingMode), "scheduler": annotation(AnnotationScheduler), "ringSize": annotation(AnnotationMaglevTableSize),
	"encapsulation": annotation(AnnotationEncapsulation), "synProtection": annotation(AnnotationSYNProtection), "survival": annotation(AnnotationConnectionConsistency),
	"health.kind": annotation(AnnotationHealthCheck), "health.path": annotation(AnnotationHealthCheckPath),
	"health.host": annotation(AnnotationHealthCheckHost), "health.port": annotation(AnnotationHealthCheckPort),
	"health.interval": annotation(AnnotationHealthCheckInterval), "health.timeout": annotation(AnnotationHealthCheckTimeout),
	"health.rise": annotation(AnnotationHealthCheckHealthyThreshold), "health.fall": annotation(AnnotationHealthCheckUnhealthyThreshold),
	"health.drain": annotation(AnnotationHealthCheckDrainTimeout),
	"prefixes":     annotation(AnnotationAdvertisePrefixes), "deny": annotation(AnnotationDenySourceRanges),
	"allow": "spec.loadBalancerSourceRanges", "affinity": "spec.sessionAffinity",
}
