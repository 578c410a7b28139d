package manifest

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/service"
)

// The annotations of a Service by which Fairlead is told what Kubernetes has
// no field for. Every other annotation that begins with AnnotationPrefix is
// refused.
const (
	AnnotationPrefix = "fairlead.io/"

	// AnnotationMethod is the forwarding method: fullnat, direct-nat or
	// tunnel (the default).
	AnnotationMethod = AnnotationPrefix + "method"
	// AnnotationScheduler is maglev (the default) or rr.
	AnnotationScheduler = AnnotationPrefix + "scheduler"
	// AnnotationRingSize is the number of slots of the Maglev ring, a prime.
	AnnotationRingSize = AnnotationPrefix + "ring-size"
	// AnnotationPanic is on (the default) or off: whether all servers stay
	// in service when every one fails its checks.
	AnnotationPanic = AnnotationPrefix + "panic"

	// AnnotationHealthCheck is tcp, http or none. The default is tcp, but
	// none for a Service that has only UDP ports and names no port to check.
	AnnotationHealthCheck = AnnotationPrefix + "health-check"
	// AnnotationHealthCheckPath is what http GETs; "/" by default.
	AnnotationHealthCheckPath = AnnotationPrefix + "health-check-path"
	// AnnotationHealthCheckHost is http's Host header; the server's address
	// by default.
	AnnotationHealthCheckHost = AnnotationPrefix + "health-check-host"
	// AnnotationHealthCheckPort is probed in place of each server's own port.
	AnnotationHealthCheckPort = AnnotationPrefix + "health-check-port"
	// AnnotationHealthCheckInterval is the time between two probes, as Go
	// writes it; 1s by default.
	AnnotationHealthCheckInterval = AnnotationPrefix + "health-check-interval"
	// AnnotationHealthCheckTimeout is how long an answer may take; 500ms by
	// default, or the interval where that is shorter.
	AnnotationHealthCheckTimeout = AnnotationPrefix + "health-check-timeout"
	// AnnotationHealthCheckRise is how many good probes in a row bring a
	// server up; 2 by default.
	AnnotationHealthCheckRise = AnnotationPrefix + "health-check-rise"
	// AnnotationHealthCheckFall is how many bad probes in a row take a
	// server down; 2 by default.
	AnnotationHealthCheckFall = AnnotationPrefix + "health-check-fall"

	// AnnotationAddresses are the VIPs, a comma list, where
	// status.loadBalancer.ingress has none.
	AnnotationAddresses = AnnotationPrefix + "addresses"
	// AnnotationPrefixes are announced in place of the /32 or /128 of the
	// VIPs that they contain, a comma list.
	AnnotationPrefixes = AnnotationPrefix + "prefixes"
	// AnnotationWeights are the servers' weights, "172.16.1.2=3,172.16.1.3=0".
	// A server that is not named has 1; 0 drains. It may also stand on an
	// EndpointSlice, where it wins over the Service's.
	AnnotationWeights = AnnotationPrefix + "weights"
)

// fault is something wrong in an object: the path of the field, and the mend.
type fault struct{ field, message string }

// annotation is the path of an annotation.
func annotation(name string) string { return "metadata.annotations[" + name + "]" }

// settings are what the annotations of a Service say.
type settings struct {
	method    service.Method
	scheduler service.Scheduler
	ringSize  int
	panic     bool
	health    service.HealthCheck
	addresses []netip.Addr
	prefixes  []netip.Prefix
	weights   map[netip.Addr]uint32
}

// setters read the annotations of a Service. They check only what the model
// cannot hold; the rest is for Service.Validate.
var setters = map[string]func(*settings, string) error{
	AnnotationMethod:              func(s *settings, v string) error { s.method = service.Method(v); return nil },
	AnnotationScheduler:           func(s *settings, v string) error { s.scheduler = service.Scheduler(v); return nil },
	AnnotationRingSize:            func(s *settings, v string) error { return setInt(&s.ringSize, v) },
	AnnotationPanic:               func(s *settings, v string) error { return setOnOff(&s.panic, v) },
	AnnotationHealthCheck:         func(s *settings, v string) error { s.health.Kind = service.CheckKind(v); return nil },
	AnnotationHealthCheckPath:     func(s *settings, v string) error { s.health.Path = v; return nil },
	AnnotationHealthCheckHost:     func(s *settings, v string) error { s.health.Host = v; return nil },
	AnnotationHealthCheckPort:     func(s *settings, v string) error { return setPort(&s.health.Port, v) },
	AnnotationHealthCheckInterval: func(s *settings, v string) error { return setDuration(&s.health.Interval, v) },
	AnnotationHealthCheckTimeout:  func(s *settings, v string) error { return setDuration(&s.health.Timeout, v) },
	AnnotationHealthCheckRise:     func(s *settings, v string) error { return setInt(&s.health.Rise, v) },
	AnnotationHealthCheckFall:     func(s *settings, v string) error { return setInt(&s.health.Fall, v) },
	AnnotationAddresses:           func(s *settings, v string) error { return setList(&s.addresses, v, parseAddr) },
	AnnotationPrefixes:            func(s *settings, v string) error { return setList(&s.prefixes, v, parsePrefix) },
	AnnotationWeights:             func(s *settings, v string) (err error) { s.weights, err = parseWeights(v); return err },
}

// readSettings reads the annotations of a Service over the defaults. onlyUDP
// says that nothing of the Service listens on TCP.
func readSettings(annotations map[string]string, onlyUDP bool) (settings, []fault) {
	s := settings{
		method: service.DefaultMethod, scheduler: service.DefaultScheduler, ringSize: service.DefaultRingSize,
		panic: true, health: service.DefaultHealthCheck,
	}
	if _, ok := annotations[AnnotationHealthCheckPort]; onlyUDP && !ok {
		s.health.Kind = service.CheckNone
	}
	faults := unknownAnnotations(annotations, slices.Sorted(maps.Keys(setters)), "")
	for _, name := range slices.Sorted(maps.Keys(setters)) {
		value, ok := annotations[name]
		if !ok {
			continue
		}
		if err := setters[name](&s, value); err != nil {
			faults = append(faults, fault{annotation(name), err.Error()})
		}
	}
	if _, ok := annotations[AnnotationHealthCheckTimeout]; !ok && s.health.Interval > 0 {
		s.health.Timeout = min(s.health.Timeout, s.health.Interval)
	}
	for _, name := range []string{AnnotationHealthCheckPath, AnnotationHealthCheckHost} {
		if _, ok := annotations[name]; ok && s.health.Kind != service.CheckHTTP {
			faults = append(faults, fault{annotation(name),
				fmt.Sprintf("has no meaning for a %s check; set %s to http", s.health.Kind, AnnotationHealthCheck)})
		}
	}
	return s, faults
}

// unknownAnnotations refuses what begins like ours but is none of known.
func unknownAnnotations(annotations map[string]string, known []string, hint string) (faults []fault) {
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		if strings.HasPrefix(name, AnnotationPrefix) && !slices.Contains(known, name) {
			mend := cmp.Or(hint, didYouMean(name, known), "; Fairlead has "+strings.Join(known, ", "))
			faults = append(faults, fault{annotation(name), "unknown annotation" + mend})
		}
	}
	return faults
}

// modelFields says by which annotation a field of the model was set.
var modelFields = map[string]string{
	"method": AnnotationMethod, "scheduler": AnnotationScheduler, "ringSize": AnnotationRingSize,
	"health.kind": AnnotationHealthCheck, "health.path": AnnotationHealthCheckPath, "health.host": AnnotationHealthCheckHost,
	"health.interval": AnnotationHealthCheckInterval, "health.timeout": AnnotationHealthCheckTimeout,
	"health.rise": AnnotationHealthCheckRise, "health.fall": AnnotationHealthCheckFall, "prefixes": AnnotationPrefixes,
}

func setInt(to *int, v string) error {
	n, err := strconv.Atoi(v)
	if err != nil {
		return fmt.Errorf("%q is not a whole number", v)
	}
	*to = n
	return nil
}

func setPort(to *uint16, v string) error {
	n, err := strconv.ParseUint(v, 10, 16)
	if err != nil || n == 0 {
		return fmt.Errorf("%q is not a port; want 1 to 65535", v)
	}
	*to = uint16(n)
	return nil
}

func setOnOff(to *bool, v string) error {
	if v != "on" && v != "off" {
		return fmt.Errorf("unknown value %q; want on or off", v)
	}
	*to = v == "on"
	return nil
}

func setDuration(to *time.Duration, v string) error {
	d, err := time.ParseDuration(v)
	if err != nil {
		return fmt.Errorf("%q is not a duration; want one like \"500ms\" or \"2s\"", v)
	}
	*to = d
	return nil
}

func setList[T any](to *[]T, v string, parse func(string) (T, error)) error {
	for part := range strings.SplitSeq(v, ",") {
		x, err := parse(strings.TrimSpace(part))
		if err != nil {
			return err
		}
		*to = append(*to, x)
	}
	return nil
}

func parseAddr(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil {
		return a, fmt.Errorf("%q is not an IP address", s)
	}
	return a, service.CheckUnicast(a)
}

func parsePrefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, fmt.Errorf("%q is not a prefix; want one like \"10.1.1.0/24\"", s)
	}
	return p, nil
}

func parseWeights(v string) (map[netip.Addr]uint32, error) {
	weights := map[netip.Addr]uint32{}
	for part := range strings.SplitSeq(v, ",") {
		addr, weight, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok {
			return nil, fmt.Errorf("%q is not a weight; want address=weight, such as \"172.16.1.2=3\"", part)
		}
		a, err := parseAddr(addr)
		if err != nil {
			return nil, err
		}
		w, err := strconv.ParseUint(weight, 10, 32)
		if err != nil || w > service.MaxWeight {
			return nil, fmt.Errorf("%q is not a weight for %s; want 0 to %d", weight, a, service.MaxWeight)
		}
		if _, twice := weights[a]; twice {
			return nil, fmt.Errorf("%s is given twice", a)
		}
		weights[a] = uint32(w)
	}
	return weights, nil
}
