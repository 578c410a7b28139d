package aws

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
)

// partition is one of AWS's separate clouds: its regions, and the domains of its
// endpoints.
type partition struct{ prefix, domain, dualStack string }

// partitions by the prefixes of their regions; the last is for all others
// (botocore's and the SDKs' partitions.json).
var partitions = []partition{
	{"cn-", "amazonaws.com.cn", "api.amazonwebservices.com.cn"},
	{"eusc-", "amazonaws.eu", "api.amazonwebservices.eu"},
	{"us-iso-", "c2s.ic.gov", "api.aws.ic.gov"},
	{"us-isob-", "sc2s.sgov.gov", "api.aws.scloud"},
	{"eu-isoe-", "cloud.adc-e.uk", "api.cloud-aws.adc-e.uk"},
	{"us-isof-", "csp.hci.ic.gov", "api.aws.hci.ic.gov"},
	{"", "amazonaws.com", "api.aws"},
}

// endpoint is the URL of EC2 in a region (the SDK's endpoint rules for EC2).
func endpoint(region string, fips, dualStack bool) string {
	host, domain := "ec2", ""
	for _, p := range partitions {
		if strings.HasPrefix(region, p.prefix) {
			domain = p.domain
			if dualStack {
				domain = p.dualStack
			}
			break
		}
	}
	if fips && (dualStack || !strings.HasPrefix(region, "us-gov-")) { // those of the government all are
		host = "ec2-fips"
	}
	return "https://" + host + "." + region + "." + domain + "/"
}

// Where the SDK keeps what the environment and the shared files say.
type (
	ignores interface {
		GetIgnoreConfiguredEndpoints(context.Context) (bool, bool, error)
	}
	overrides interface {
		GetServiceBaseEndpoint(context.Context, string) (string, bool, error)
	}
	wantsFIPS interface {
		GetUseFIPSEndpoint(context.Context) (sdk.FIPSEndpointState, bool, error)
	}
	wantsTwoIPs interface {
		GetUseDualStackEndpoint(context.Context) (sdk.DualStackEndpointState, bool, error)
	}
)

// endpointOf gives the URL that is configured for EC2 (AWS_ENDPOINT_URL_EC2 and
// the like), or else that of the region.
func endpointOf(ctx context.Context, found sdk.Config) (string, error) {
	if ignore, err := first(found.ConfigSources, func(s ignores) (bool, bool, error) { return s.GetIgnoreConfiguredEndpoints(ctx) }); err != nil {
		return "", err
	} else if !ignore {
		own, err := first(found.ConfigSources, func(s overrides) (string, bool, error) { return s.GetServiceBaseEndpoint(ctx, "EC2") })
		if err != nil {
			return "", err
		}
		if url := cmp.Or(own, sdk.ToString(found.BaseEndpoint)); url != "" {
			return url, nil
		}
	}
	if found.Region == "" || strings.ContainsAny(found.Region, "./:@ ") {
		return "", fmt.Errorf("%q is no region: set AWS_REGION, or region in the shared config", found.Region)
	}
	fips, err := first(found.ConfigSources, func(s wantsFIPS) (sdk.FIPSEndpointState, bool, error) { return s.GetUseFIPSEndpoint(ctx) })
	if err != nil {
		return "", err
	}
	two, err := first(found.ConfigSources, func(s wantsTwoIPs) (sdk.DualStackEndpointState, bool, error) { return s.GetUseDualStackEndpoint(ctx) })
	return endpoint(found.Region, fips == sdk.FIPSEndpointStateEnabled, two == sdk.DualStackEndpointStateEnabled), err
}

// first gives what the first source that knows says.
func first[S, V any](sources []any, get func(S) (V, bool, error)) (v V, err error) {
	for _, s := range sources {
		if of, ok := s.(S); ok {
			if v, found, err := get(of); err != nil || found {
				return v, err
			}
		}
	}
	return v, nil
}
