package service

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Limits for the settings of a Service.
const (
	// MinRingSize still gives three backends shares within 1 %.
	MinRingSize = 251
	// MaxWeight is the limit of LVS.
	MaxWeight = 65535
	// MinInterval and MaxInterval limit the time between two probes.
	MinInterval = 10 * time.Millisecond
	MaxInterval = time.Hour
	// MaxHealthDrain limits how long a backend that is down keeps its connections.
	MaxHealthDrain = 24 * time.Hour
	// MaxThreshold limits Rise and Fall.
	MaxThreshold = 1000
	// MinAffinity and MaxAffinity are the limits of Kubernetes.
	MinAffinity = time.Second
	MaxAffinity = 86400 * time.Second
)

// FieldError says which field of a Service is wrong and what would be valid.
type FieldError struct {
	// Field is the path in the model: "ringSize", "health.interval",
	// "frontends[0].backends[2].weight".
	Field   string
	Message string
}

func (e FieldError) Error() string { return e.Field + ": " + e.Message }

// Validate returns every error in s, or none if the Service may be published.
func (s *Service) Validate() []FieldError {
	v := &validator{}
	v.check(s.ID.Namespace != "", "id.namespace", "is empty; every Service has a namespace")
	v.check(s.ID.Name != "", "id.name", "is empty; every Service has a name")
	v.check(slices.Contains(Methods, s.Method), "method", "unknown forwarding mode %q; want %s", s.Method, Alternatives(Methods))
	v.check(slices.Contains(Schedulers, s.Scheduler), "scheduler", "unknown scheduler %q; want %s",
		s.Scheduler, Alternatives(Schedulers))
	v.check(s.SYNProtection == "" || slices.Contains(SYNProtections, s.SYNProtection), "synProtection",
		"unknown SYN protection %q; want %s", s.SYNProtection, Alternatives(SYNProtections))
	v.ringSize(s.RingSize)
	v.encapsulation(s)
	v.survival(s)
	v.affinity(s)
	v.clients(s)
	v.health(s.Health)
	v.prefixes(s)
	v.frontends(s)
	return v.errs
}

// Alternatives formats valid values as in a sentence: "a, b or c".
func Alternatives[T ~string](valid []T) string {
	b := &strings.Builder{}
	for i, x := range valid {
		switch {
		case i > 0 && i == len(valid)-1:
			b.WriteString(" or ")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(string(x))
	}
	return b.String()
}

type validator struct{ errs []FieldError }

// check records an error unless ok.
func (v *validator) check(ok bool, field, format string, args ...any) bool {
	if !ok {
		v.errs = append(v.errs, FieldError{field, fmt.Sprintf(format, args...)})
	}
	return ok
}

func (v *validator) ringSize(n int) {
	if !v.check(n >= MinRingSize && n <= MaxRingSize, "ringSize", "%d is out of range; want a prime from %d to %d, such as %d",
		n, MinRingSize, MaxRingSize, DefaultRingSize) || isPrime(n) {
		return
	}
	// Both limits are primes, so there is always a prime on either side.
	below, above := n-1, n+1
	for !isPrime(below) {
		below--
	}
	for !isPrime(above) {
		above++
	}
	v.check(false, "ringSize", "%d is not a prime; the nearest are %d and %d", n, below, above)
}

func isPrime(n int) bool {
	for d := 2; d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return n > 1
}

func (v *validator) health(h HealthCheck) {
	if !v.check(slices.Contains(Checks, h.Kind), "health.kind", "unknown health check %q; want %s", h.Kind, Alternatives(Checks)) ||
		h.Kind == CheckNone {
		return
	}
	v.check(h.Interval >= MinInterval && h.Interval <= MaxInterval, "health.interval",
		"%s is out of range; want %s to %s", h.Interval, MinInterval, MaxInterval)
	v.check(h.Timeout > 0, "health.timeout", "%s is out of range; want more than 0", h.Timeout)
	v.check(h.Timeout <= h.Interval, "health.timeout",
		"%s is longer than the interval of %s, so that probes would overtake one another", h.Timeout, h.Interval)
	v.check(h.Rise >= 1 && h.Rise <= MaxThreshold, "health.rise", "%d is out of range; want 1 to %d", h.Rise, MaxThreshold)
	v.check(h.Fall >= 1 && h.Fall <= MaxThreshold, "health.fall", "%d is out of range; want 1 to %d", h.Fall, MaxThreshold)
	v.check(h.Drain >= 0 && h.Drain <= MaxHealthDrain, "health.drain", "%s is out of range; want 0s to %s", h.Drain, MaxHealthDrain)
	if h.Kind == CheckHTTP {
		v.check(strings.HasPrefix(h.Path, "/") && printable(h.Path) && !strings.Contains(h.Path, "#"), "health.path",
			"%q is not a path; want one like \"/healthz\"", h.Path)
		v.check(printable(h.Host) && !strings.ContainsAny(h.Host, "/?#@"), "health.host",
			"%q is not a host name; want one like \"www.example.org\"", h.Host)
	}
}

// printable reports whether s contains only visible ASCII characters.
func printable(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

func (v *validator) prefixes(s *Service) {
	for i, p := range s.Prefixes {
		field := fmt.Sprintf("prefixes[%d]", i)
		if !v.check(p.IsValid(), field, "is not a prefix; want one like 10.1.1.0/24") ||
			!v.check(p == p.Masked(), field, "%s has bits beyond its length; did you mean %s?", p, p.Masked()) ||
			!v.check(p.Bits() > 0, field, "%s is everything; want a prefix around the VIPs", p) {
			continue
		}
		v.check(!slices.Contains(s.Prefixes[:i], p), field, "%s is given twice", p)
		v.check(slices.ContainsFunc(s.Frontends, func(f Frontend) bool { return p.Contains(f.VIP) }), field,
			"%s contains no VIP of this Service", p)
	}
}

// CheckUnicast returns why a is not valid as the address of a VIP or a backend, or nil.
// It rejects what Kubernetes rejects for endpoints, and addresses with two spellings.
func CheckUnicast(a netip.Addr) error {
	switch {
	case !a.IsValid():
		return fmt.Errorf("is not an IP address")
	case a.Zone() != "":
		return fmt.Errorf("%s has a zone; want an address that is valid everywhere", a)
	case a.Is4In6():
		return fmt.Errorf("%s is an IPv4 address in IPv6 clothes; write %s", a, a.Unmap())
	case a.IsUnspecified(), a.IsLoopback(), a.IsMulticast(), a.IsLinkLocalUnicast(), a == broadcast:
		return fmt.Errorf("%s is not a unicast address that can be routed to", a)
	}
	return nil
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})
