package aws

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
)

// partition is one of the isolated AWS partitions: its regions, and the domains of its
// endpoints.
type partition struct{ prefix, domain, dualStack string }

// partitions by region prefix; the last one is the default (partitions.json of botocore
// and the SDKs).
var partitions = []partition{
	{"cn-", "amazonaws.com.cn", "api.amazonwebservices.com.cn"},
	{"eusc-", "amazonaws.eu", "api.amazonwebservices.eu"},
	{"us-iso-", "c2s.ic.gov", "api.aws.ic.gov"},
	{"us-isob-", "sc2s.sgov.gov", "api.aws.scloud"},
	{"eu-isoe-", "cloud.adc-e.uk", "api.cloud-aws.adc-e.uk"},
	{"us-isof-", "csp.hci.ic.gov", "api.aws.hci.ic.gov"},
	{"", "amazonaws.com", "api.aws"},
}

// endpoint returns the URL of EC2 in a region (the SDK's endpoint rules for EC2).
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
	if fips && (dualStack || !strings.HasPrefix(region, "us-gov-")) { // all endpoints of GovCloud are FIPS
		host = "ec2-fips"
	}
	return "https://" + host + "." + region + "." + domain + "/"
}

// Where the SDK stores settings from the environment and the shared files.
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

// endpointOf returns the URL configured for EC2 (AWS_ENDPOINT_URL_EC2 and similar), or
// otherwise that of the region.
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

// first returns the value from the first source that has one.
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
