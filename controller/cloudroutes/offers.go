// Package cloudroutes is the protocol between agents and the controller for prefixes that
// a cloud routes to load balancers. Each agent renews a Lease with the routes that it can
// serve. The leading controller reads all of them, and writes the state of the cloud into
// them. If an agent no longer renews its Lease, it counts as dead: the Lease is deleted,
// and with it the agent's offer.
package cloudroutes

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/netip"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/advertise/cloud"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/internal/kubeclient"
)

// Names in a Lease.
const (
	// Label is on every Lease with an offer.
	Label = "fairlead.io/offer"
	// AnnotationOffer has the offer, AnnotationCloud the state of the cloud.
	AnnotationOffer = "fairlead.io/offer"
	AnnotationCloud = "fairlead.io/cloud"
	// namePrefix begins a Lease's name.
	namePrefix = "fairlead-offer-"
)

// Duration is how long an agent counts as alive after it last renewed its Lease.
const Duration = 15 * time.Second

// offered is the content of AnnotationOffer.
type offered struct {
	// Serial distinguishes a repeated offer from the previous one.
	Serial string         `json:"serial"`
	Routes []offeredRoute `json:"routes"`
}

type offeredRoute struct {
	Prefix  netip.Prefix `json:"prefix"`
	NextHop netip.Addr   `json:"nextHop"`
}

// answered is the content of AnnotationCloud.
type answered struct {
	// Offer is the checksum of the AnnotationOffer that State refers to.
	Offer string      `json:"offer"`
	State cloud.State `json:"state"`
}

func encode(serial string, routes []route.Route) string {
	o := offered{Serial: serial, Routes: []offeredRoute{}}
	for _, r := range routes {
		o.Routes = append(o.Routes, offeredRoute{r.Prefix, r.NextHop})
	}
	// Prefixes and addresses always encode.
	text, _ := json.Marshal(o)
	return string(text)
}

func decode(node, text string) (cloud.Offer, error) {
	var o offered
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return cloud.Offer{}, fmt.Errorf("%s of node %s: %w", AnnotationOffer, node, err)
	}
	offer := cloud.Offer{Node: node}
	for _, r := range o.Routes {
		if !r.Prefix.IsValid() || !r.NextHop.IsValid() || r.Prefix != r.Prefix.Masked() {
			return cloud.Offer{}, fmt.Errorf("%s of node %s: %s by %s is no route", AnnotationOffer, node, r.Prefix, r.NextHop)
		}
		offer.Routes = append(offer.Routes, route.Route{Prefix: r.Prefix, NextHop: r.NextHop})
	}
	return offer, nil
}

// sum returns a checksum of a text.
func sum(text string) string {
	f := fnv.New64a()
	_, _ = f.Write([]byte(text)) // a hash never fails
	return fmt.Sprintf("%016x", f.Sum64())
}

// leaseClient accesses the Leases of a namespace.
type leaseClient = *kubeclient.Resource[*coordinationv1.Lease, *coordinationv1.LeaseList]

func leases(config *rest.Config, namespace string) (leaseClient, error) {
	scheme, err := kubeclient.Scheme(coordinationv1.AddToScheme)
	if err != nil {
		return nil, fmt.Errorf("offers: %w", err)
	}
	c, err := kubeclient.Connect(config, scheme, coordinationv1.SchemeGroupVersion)
	if err != nil {
		return nil, fmt.Errorf("offers: %w", err)
	}
	return kubeclient.Of[*coordinationv1.Lease, *coordinationv1.LeaseList](c[coordinationv1.SchemeGroupVersion], "leases", namespace), nil
}

// words explains an error of the API server.
func words(err error, namespace string) string {
	if apierrors.IsForbidden(err) {
		return fmt.Sprintf("no right to Leases in namespace %s: set cloud.provider in the chart's values (docs/clouds.md): %v", namespace, err)
	}
	return "the API server: " + err.Error()
}

// nameOf is the name of a node's Lease.
func nameOf(node string) string { return namePrefix + strings.ToLower(node) }
