// Package cloudroutes is what agents and the controller tell each other where a cloud
// leads prefixes to balancers: each agent has a Lease that says what it is ready
// to carry, and renews it; the controller that leads reads all of them, and writes
// there how the cloud stands. A Lease that is renewed no more is an agent that is
// dead: its Lease is deleted, and with that what it offered is gone.
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

// The names of what is in a Lease.
const (
	// Label is on every Lease that is an offer.
	Label = "fairlead.io/offer"
	// AnnotationOffer is what is offered, AnnotationCloud how the cloud stands.
	AnnotationOffer = "fairlead.io/offer"
	AnnotationCloud = "fairlead.io/cloud"
	// namePrefix begins a Lease's name.
	namePrefix = "fairlead-offer-"
)

// Duration is how long an agent that renews its Lease no more is taken for alive.
const Duration = 15 * time.Second

// offered is the text of AnnotationOffer.
type offered struct {
	// Serial makes an offer that is made again another one.
	Serial string         `json:"serial"`
	Routes []offeredRoute `json:"routes"`
}

type offeredRoute struct {
	Prefix  netip.Prefix `json:"prefix"`
	NextHop netip.Addr   `json:"nextHop"`
}

// answered is the text of AnnotationCloud.
type answered struct {
	// Offer is the sum of the AnnotationOffer that State is about.
	Offer string      `json:"offer"`
	State cloud.State `json:"state"`
}

func encode(serial string, routes []route.Route) string {
	o := offered{Serial: serial, Routes: []offeredRoute{}}
	for _, r := range routes {
		o.Routes = append(o.Routes, offeredRoute{r.Prefix, r.NextHop})
	}
	// Prefixes and addresses always have a text.
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

// sum stands for a text.
func sum(text string) string {
	f := fnv.New64a()
	_, _ = f.Write([]byte(text)) // a hash takes all
	return fmt.Sprintf("%016x", f.Sum64())
}

// leaseClient has the verbs for the Leases of a namespace.
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

// words says what an error of the API server means here.
func words(err error, namespace string) string {
	if apierrors.IsForbidden(err) {
		return fmt.Sprintf("no right to Leases in namespace %s: set cloud.provider in the chart's values (docs/clouds.md): %v", namespace, err)
	}
	return "the API server: " + err.Error()
}

// nameOf is the name of a node's Lease.
func nameOf(node string) string { return namePrefix + strings.ToLower(node) }
