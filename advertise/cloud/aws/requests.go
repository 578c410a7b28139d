package aws

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
)

// The requests in use, and the parts of their answers that are read (Amazon EC2 API
// Reference).

// filter limits a Describe request to resources with one of some values.
type filter struct {
	name   string
	values []string
}

type tag struct {
	Key   string `xml:"key"`
	Value string `xml:"value"`
}

type routeTable struct {
	ID     string     `xml:"routeTableId"`
	VPC    string     `xml:"vpcId"`
	Tags   []tag      `xml:"tagSet>item"`
	Routes []vpcRoute `xml:"routeSet>item"`
}

// vpcRoute has one destination and one target.
type vpcRoute struct {
	CIDR     string `xml:"destinationCidrBlock"`
	IPv6CIDR string `xml:"destinationIpv6CidrBlock"`

	NetworkInterface string `xml:"networkInterfaceId"`
	Instance         string `xml:"instanceId"`
	Gateway          string `xml:"gatewayId"`
	NATGateway       string `xml:"natGatewayId"`
	TransitGateway   string `xml:"transitGatewayId"`
	Peering          string `xml:"vpcPeeringConnectionId"`
	EgressOnly       string `xml:"egressOnlyInternetGatewayId"`
	Carrier          string `xml:"carrierGatewayId"`
	Local            string `xml:"localGatewayId"`
	CoreNetwork      string `xml:"coreNetworkArn"`
	ODBNetwork       string `xml:"odbNetworkArn"`
}

type networkInterface struct {
	ID        string `xml:"networkInterfaceId"`
	Check     bool   `xml:"sourceDestCheck"`
	Addresses []struct {
		Address string `xml:"privateIpAddress"`
		Primary bool   `xml:"primary"`
	} `xml:"privateIpAddressesSet>item"`
	IPv6Addresses []string `xml:"ipv6AddressesSet>item>ipv6Address"`
	Tags          []tag    `xml:"tagSet>item"`
}

// elasticIP is the association of an Elastic IP.
type elasticIP struct {
	Allocation       string `xml:"allocationId"`
	NetworkInterface string `xml:"networkInterfaceId"`
	Address          string `xml:"privateIpAddress"`
	Tags             []tag  `xml:"tagSet>item"`
}

// numbered adds a list to a form: name.1, name.2 and so on.
func numbered(form url.Values, name string, values ...string) {
	for i, v := range values {
		form.Set(fmt.Sprintf("%s.%d", name, i+1), v)
	}
}

func filtered(form url.Values, filters []filter) url.Values {
	for i, f := range filters {
		name := fmt.Sprintf("Filter.%d", i+1)
		form.Set(name+".Name", f.name)
		numbered(form, name+".Value", f.values...)
	}
	return form
}

// page makes a Describe request continue after the previous page.
func page(form url.Values, token string) url.Values {
	if token != "" {
		form.Set("NextToken", token)
	}
	return form
}

func (a *api) DescribeRouteTables(ctx context.Context, ids []string, token string) (tables []routeTable, next string, err error) {
	var got struct {
		Tables []routeTable `xml:"routeTableSet>item"`
		Next   string       `xml:"nextToken"`
	}
	form := page(url.Values{}, token)
	numbered(form, "RouteTableId", ids...)
	err = a.do(ctx, "DescribeRouteTables", form, &got)
	return got.Tables, got.Next, err
}

func (a *api) DescribeNetworkInterfaces(ctx context.Context, filters []filter, token string) (all []networkInterface, next string, err error) {
	var got struct {
		Interfaces []networkInterface `xml:"networkInterfaceSet>item"`
		Next       string             `xml:"nextToken"`
	}
	err = a.do(ctx, "DescribeNetworkInterfaces", page(filtered(url.Values{}, filters), token), &got)
	return got.Interfaces, got.Next, err
}

func (a *api) DescribeAddresses(ctx context.Context, filters ...filter) ([]elasticIP, error) {
	var got struct {
		Addresses []elasticIP `xml:"addressesSet>item"`
	}
	err := a.do(ctx, "DescribeAddresses", filtered(url.Values{}, filters), &got)
	return got.Addresses, err
}

// routeForm identifies a route of a table.
func routeForm(table string, p netip.Prefix) url.Values {
	destination := "DestinationCidrBlock"
	if p.Addr().Is6() {
		destination = "DestinationIpv6CidrBlock"
	}
	return url.Values{"RouteTableId": {table}, destination: {p.String()}}
}

func (a *api) CreateRoute(ctx context.Context, table string, p netip.Prefix, to string) error {
	form := routeForm(table, p)
	form.Set("NetworkInterfaceId", to)
	return a.do(ctx, "CreateRoute", form, nil)
}

func (a *api) ReplaceRoute(ctx context.Context, table string, p netip.Prefix, to string) error {
	form := routeForm(table, p)
	form.Set("NetworkInterfaceId", to)
	return a.do(ctx, "ReplaceRoute", form, nil)
}

func (a *api) DeleteRoute(ctx context.Context, table string, p netip.Prefix) error {
	return a.do(ctx, "DeleteRoute", routeForm(table, p), nil)
}

func (a *api) CreateTags(ctx context.Context, on string, t tag) error {
	return a.do(ctx, "CreateTags", url.Values{"ResourceId.1": {on}, "Tag.1.Key": {t.Key}, "Tag.1.Value": {t.Value}}, nil)
}

func (a *api) DeleteTags(ctx context.Context, on, key string) error {
	return a.do(ctx, "DeleteTags", url.Values{"ResourceId.1": {on}, "Tag.1.Key": {key}}, nil)
}

// ModifyNetworkInterfaceAttribute sets whether an interface checks source and
// destination.
func (a *api) ModifyNetworkInterfaceAttribute(ctx context.Context, id string, check bool) error {
	return a.do(ctx, "ModifyNetworkInterfaceAttribute", url.Values{"NetworkInterfaceId": {id}, "SourceDestCheck.Value": {strconv.FormatBool(check)}}, nil)
}

func (a *api) AssignPrivateIpAddresses(ctx context.Context, id string, addr netip.Addr, move bool) error {
	return a.do(ctx, "AssignPrivateIpAddresses", url.Values{
		"NetworkInterfaceId": {id}, "PrivateIpAddress.1": {addr.String()}, "AllowReassignment": {strconv.FormatBool(move)},
	}, nil)
}

func (a *api) UnassignPrivateIpAddresses(ctx context.Context, id string, addr netip.Addr) error {
	return a.do(ctx, "UnassignPrivateIpAddresses", url.Values{"NetworkInterfaceId": {id}, "PrivateIpAddress.1": {addr.String()}}, nil)
}

// AssociateAddress associates an Elastic IP with an address, whatever its previous
// association.
func (a *api) AssociateAddress(ctx context.Context, allocation, id string, addr netip.Addr) error {
	return a.do(ctx, "AssociateAddress", url.Values{
		"AllocationId": {allocation}, "NetworkInterfaceId": {id}, "PrivateIpAddress": {addr.String()}, "AllowReassociation": {"true"},
	}, nil)
}
