package object

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/core/service"
)

// Admission is what a ValidatingAdmissionPolicy checks of the annotations of a Service or
// EndpointSlice that have changed, so that the API server rejects a mistake when it is
// applied.
type Admission struct {
	Variables   []AdmissionVariable `json:"variables"`
	Validations []AdmissionRule     `json:"validations"`
}

// AdmissionVariable is an expression that rules refer to.
type AdmissionVariable struct {
	Name       string `json:"name"`
	Expression string `json:"expression"`
}

// AdmissionRule is an expression that must be true, else the message is the reason.
type AdmissionRule struct {
	Expression        string `json:"expression"`
	MessageExpression string `json:"messageExpression"`
}

// Expressions of the Common Expression Language (CEL) for a value v.
const (
	celNumber   = `v.matches(r'^[+-]?[0-9]+$')`
	celDuration = `v.matches(r'^[+-]?(0|(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$')`
	celPrefixes = `v.split(',').all(p, isCIDR(p.trim()))`
	// celPerAddr is for values like 172.16.1.2=3.
	celPerAddr = `v.split(',').all(p, p.matches(r'^[^=]+=\s*[0-9]+\s*$') && isIP(p.split('=')[0].trim()))`
)

// celTimes is for values like 172.16.1.2=2026-01-02T15:04:05Z. It is cheap: an EndpointSlice
// can have 1,000, and an API server limits the cost of an expression.
const celTimes = `v.split(',').all(p, p.matches(r'^[^=]+=\s*[0-9]+-[-0-9T:.,Z+/]+\s*$') && isIP(p.split('=')[0].trim()))`

// celPool matches the names of AddressPools.
const celPool = `v.split(',').all(p, p.trim().matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$'))`

// admissible has for each annotation what an API server can check of it, and in words what
// it wants. It accepts all that setters and Service.Validate accept, which also check what
// depends on other fields.
var admissible = map[string]struct{ valid, want string }{
	AnnotationForwardingMode:                oneOf(service.Methods),
	AnnotationEncapsulation:                 oneOf(service.Encapsulations),
	AnnotationNetwork:                       {`v.matches(r'^[^/@, ]+(/[^/@, ]+)?$')`, "the name of a network; want one like storage or default/storage"},
	AnnotationScheduler:                     oneOf(service.Schedulers),
	AnnotationConnectionConsistency:         oneOf(service.Survivals),
	AnnotationMaglevTableSize:               {celNumber, "a whole number; want a prime like 65521"},
	AnnotationPanicMode:                     oneOf([]string{"enabled", "disabled"}),
	AnnotationDedicated:                     oneOf([]string{"true", "false"}),
	AnnotationHealthCheck:                   oneOf(service.Checks),
	AnnotationHealthCheckPath:               {`v.matches(r'^/[!-~]*$') && !v.contains('#')`, "a path; want one like /healthz"},
	AnnotationHealthCheckHost:               {`v.matches(r'^[!-~]*$') && !v.matches('[/?#@]')`, "a host name; want one like www.example.org"},
	AnnotationHealthCheckPort:               {`v.matches(r'^[0-9]{1,9}$') && int(v) >= 1 && int(v) <= 65535`, "a port; want 1 to 65535"},
	AnnotationHealthCheckInterval:           {celDuration, "a duration; want one like 500ms or 2s"},
	AnnotationHealthCheckTimeout:            {celDuration, "a duration; want one like 500ms or 2s"},
	AnnotationHealthCheckHealthyThreshold:   {celNumber, "a whole number; want one like 2"},
	AnnotationHealthCheckUnhealthyThreshold: {celNumber, "a whole number; want one like 2"},
	AnnotationHealthCheckDrainTimeout:       {celDuration, "a duration; want one like 30s"},
	AnnotationAddresses:                     {`v.split(',').all(a, isIP(a.trim()))`, "a list of IP addresses; want one like 10.1.1.1,2001:db8::1"},
	AnnotationAddressPool:                   {celPool, "a list of names of AddressPools; want one like web,mail"},
	AnnotationAddressSharingKey:             {"true", ""},
	AnnotationAdvertisePrefixes:             {celPrefixes, "a list of prefixes; want one like 10.1.1.0/24"},
	AnnotationWeights:                       {celPerAddr, "a list of weights; want one like 172.16.1.2=3,172.16.1.3=0"},
	AnnotationMaxConnections:                {`v.matches(r'^[0-9]+$') || ` + celPerAddr, "a number of connections; want one like 500 or 172.16.1.2=500"},
	AnnotationPortRanges:                    {`v.trim() == 'all' || v.split(',').all(p, p.matches(r'^\s*([^=]*=)?\s*[0-9]+-[0-9]+\s*$'))`, "a list of port ranges; want one like rtp=10000-19999, or all"},
	AnnotationDenySourceRanges:              {celPrefixes, "a list of prefixes; want one like 192.0.2.0/24"},
	AnnotationRateLimits:                    {`v.split(',').all(p, p.matches(r'^\s*(` + strings.Join(service.LimitNames, "|") + `)\s*=\s*[0-9]+\s*$'))`, "a list of rate limits; want one like client-cps=50,pps=100000"},
	AnnotationBackendTimestamps:             {celTimes, "a list of times; want one like 172.16.1.2=2026-01-02T15:04:05Z"},
	AnnotationSYNProtection:                 oneOf(append(slices.Clone(service.SYNProtections), "")),
}

func oneOf[T ~string](values []T) struct{ valid, want string } {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = "'" + string(v) + "'"
	}
	return struct{ valid, want string }{
		"v in [" + strings.Join(quoted, ", ") + "]", "valid; want " + service.Alternatives(slices.DeleteFunc(slices.Clone(values), func(v T) bool { return v == "" })),
	}
}

// AdmissionPolicy returns a rule for unknown annotations of Services, and one for each
// annotation. SliceAdmissionPolicy is that of EndpointSlices.
func AdmissionPolicy() Admission      { return admissionOf(Annotations()) }
func SliceAdmissionPolicy() Admission { return admissionOf(sliceAnnotations) }

func admissionOf(known []string) Admission {
	p := Admission{[]AdmissionVariable{
		{"annotations", "object.metadata.?annotations.orValue({})"},
		{"before", "oldObject == null ? {} : oldObject.metadata.?annotations.orValue({})"},
		{"changed", "variables.annotations.filter(k, variables.before[?k] != variables.annotations[?k])"},
		{"unknown", fmt.Sprintf("variables.changed.filter(k, k.startsWith('%s') && !(k in ['%s']))", AnnotationPrefix, strings.Join(known, "', '"))},
	}, []AdmissionRule{{
		"variables.unknown.size() == 0",
		"'metadata.annotations[' + variables.unknown[0] + ']: unknown annotation; Fairlead has " + strings.Join(known, ", ") + "'",
	}}}
	for _, name := range known {
		a := admissible[name]
		if a.valid == "true" {
			continue
		}
		p.Validations = append(p.Validations, AdmissionRule{
			fmt.Sprintf("!('%[1]s' in variables.changed) || variables.annotations[?'%[1]s'].optMap(v, %[2]s).orValue(true)", name, a.valid),
			fmt.Sprintf("'metadata.annotations[%[1]s]: \"' + variables.annotations['%[1]s'] + '\" is not %[2]s'", name, a.want),
		})
	}
	return p
}
