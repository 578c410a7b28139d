package aws

import (
	"context"
	"fmt"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
)

// request is one kind of request to EC2.
type request[In, Out any] func(context.Context, *In, ...func(*ec2.Options)) (*Out, error)

// api are the requests that are made here. The client's type must not be held in
// any value that becomes an interface: the linker would keep all of its 700
// requests, in case that reflection asks for one, and the binary grow by half.
type api struct {
	DescribeRouteTables             request[ec2.DescribeRouteTablesInput, ec2.DescribeRouteTablesOutput]
	DescribeNetworkInterfaces       request[ec2.DescribeNetworkInterfacesInput, ec2.DescribeNetworkInterfacesOutput]
	DescribeAddresses               request[ec2.DescribeAddressesInput, ec2.DescribeAddressesOutput]
	CreateRoute                     request[ec2.CreateRouteInput, ec2.CreateRouteOutput]
	ReplaceRoute                    request[ec2.ReplaceRouteInput, ec2.ReplaceRouteOutput]
	DeleteRoute                     request[ec2.DeleteRouteInput, ec2.DeleteRouteOutput]
	CreateTags                      request[ec2.CreateTagsInput, ec2.CreateTagsOutput]
	DeleteTags                      request[ec2.DeleteTagsInput, ec2.DeleteTagsOutput]
	ModifyNetworkInterfaceAttribute request[ec2.ModifyNetworkInterfaceAttributeInput, ec2.ModifyNetworkInterfaceAttributeOutput]
	AssignPrivateIpAddresses        request[ec2.AssignPrivateIpAddressesInput, ec2.AssignPrivateIpAddressesOutput]
	UnassignPrivateIpAddresses      request[ec2.UnassignPrivateIpAddressesInput, ec2.UnassignPrivateIpAddressesOutput]
	AssociateAddress                request[ec2.AssociateAddressInput, ec2.AssociateAddressOutput]
}

// tries is how often a request that is throttled, or fails, is made in all; the
// pauses between grow, and all requests become rarer.
const tries = 5

// connect finds out where EC2 is, and who we are there.
func connect(ctx context.Context) (*api, error) {
	found, err := config.LoadDefaultConfig(ctx, config.WithEC2IMDSRegion(), config.WithRetryer(func() sdk.Retryer {
		return retry.NewAdaptiveMode(func(o *retry.AdaptiveModeOptions) {
			o.StandardOptions = append(o.StandardOptions, func(o *retry.StandardOptions) { o.MaxAttempts = tries })
		})
	}))
	if err != nil {
		return nil, fmt.Errorf("aws: %w", err)
	}
	c := ec2.NewFromConfig(found)
	return &api{
		c.DescribeRouteTables, c.DescribeNetworkInterfaces, c.DescribeAddresses, c.CreateRoute, c.ReplaceRoute, c.DeleteRoute,
		c.CreateTags, c.DeleteTags, c.ModifyNetworkInterfaceAttribute, c.AssignPrivateIpAddresses, c.UnassignPrivateIpAddresses,
		c.AssociateAddress,
	}, nil
}

// pages calls get with nil, and then with the token of each page that follows.
func pages(get func(token *string) (next *string, err error)) error {
	for token := (*string)(nil); ; {
		next, err := get(token)
		if err != nil || next == nil || *next == "" {
			return err
		}
		token = next
	}
}
