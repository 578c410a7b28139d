// Package controller is the controller: it gives Services of type LoadBalancer
// addresses of AddressPools and writes them to their status, and writes to their
// EndpointSlices since when each server takes flows; likewise to Gateways. One of several leads, by a
// Lease. What is assigned is what the Services' status says: whoever begins to
// lead reads all of it before it assigns anything. Which address a Service gets
// is decided by package addresspool, since when a server serves by object.Ages.
package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/advertise/cloud"
	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/internal/kubeclient"
	"github.com/fairlead/fairlead/source/gateway"
)

// What a Config leaves open.
const (
	DefaultNamespace      = "fairlead"
	DefaultLease          = "fairlead-controller"
	DefaultLeaseDuration  = 15 * time.Second
	DefaultStatusInterval = 5 * time.Second
)

// Config is what a controller is told.
type Config struct {
	// Client is the way to the API server. Its limit of requests is not used:
	// the server's own fairness is.
	Client *rest.Config
	// Namespace and Lease say where the Lease of who leads is.
	Namespace, Lease string
	// Identity is this controller's name in the Lease; by default the host's name
	// with something random behind it.
	Identity string
	// RequireClass leaves Services without spec.loadBalancerClass to others.
	RequireClass bool
	// GatewayAPI has Gateways get addresses, and all that belongs to them its
	// conditions, where the cluster has the Gateway API.
	GatewayAPI bool
	// LeaseDuration is how long the Lease of a dead leader holds the others off;
	// a leader that cannot renew it for two thirds of it gives up. By default
	// 15s.
	LeaseDuration time.Duration
	// StatusInterval is how often an AddressPool's status is written at most; by
	// default 5s.
	StatusInterval time.Duration
	// Cloud leads prefixes to the agents that offer them; nil: none does.
	Cloud cloud.Provider
	Log   *slog.Logger
}

// Controller is one of the controllers of a cluster.
type Controller struct {
	Config
	api    kubeclient.Clients
	scheme *runtime.Scheme
	events *kubeclient.Recorder
}

// New makes a controller. The error is about the Config.
func New(c Config) (*Controller, error) {
	c.Namespace = cmp.Or(c.Namespace, DefaultNamespace)
	c.Lease = cmp.Or(c.Lease, DefaultLease)
	c.LeaseDuration = cmp.Or(c.LeaseDuration, DefaultLeaseDuration)
	c.StatusInterval = cmp.Or(c.StatusInterval, DefaultStatusInterval)
	c.Log = cmp.Or(c.Log, slog.Default())
	if c.Client == nil {
		return nil, errors.New("kube: Client is missing; give it the way to the API server")
	}
	if c.LeaseDuration < time.Second || c.LeaseDuration%time.Second != 0 {
		return nil, fmt.Errorf("kube: LeaseDuration %s is not whole seconds, 1s at least", c.LeaseDuration)
	}
	if c.Identity == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("kube: Identity is not given, and the host has no name: %w", err)
		}
		c.Identity = host + "-" + string(uuid.NewUUID())
	}
	k := &Controller{Config: c}
	var err error
	k.scheme, err = kubeclient.Scheme(corev1.AddToScheme, discoveryv1.AddToScheme, coordinationv1.AddToScheme, eventsv1.AddToScheme, v1alpha1.AddToScheme, gateway.AddToScheme)
	if err != nil {
		return nil, fmt.Errorf("kube: %w", err)
	}
	k.api, err = kubeclient.Connect(c.Client, k.scheme, corev1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion, coordinationv1.SchemeGroupVersion,
		eventsv1.SchemeGroupVersion, v1alpha1.GroupVersion, gateway.V1, gateway.V1Beta1, gateway.V1Alpha2)
	if err != nil {
		return nil, fmt.Errorf("kube: Client: %w", err)
	}
	return k, nil
}

// Run leads whenever it holds the Lease, until the context ends. Faults of the
// API server, rights or resources that are missing are logged and tried again.
func (k *Controller) Run(ctx context.Context) error {
	k.events = kubeclient.NewRecorder(k.api[eventsv1.SchemeGroupVersion], k.Log)
	defer k.events.Close()
	for ctx.Err() == nil {
		k.stand(ctx)
	}
	return nil
}
