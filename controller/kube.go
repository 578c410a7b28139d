// Package controller assigns addresses of AddressPools to Services of type LoadBalancer
// and to Gateways and writes them to their status. It records in their EndpointSlices
// when each backend began to receive flows. A Lease elects the leader of several
// controllers. The status of the Services is authoritative: a new leader reads all of it
// before it assigns anything. Package addresspool decides which address a Service gets,
// object.Ages when a backend began to serve.
package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
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
	"github.com/fairlead/fairlead/internal/heartbeat"
	"github.com/fairlead/fairlead/internal/kubeclient"
	"github.com/fairlead/fairlead/source/gateway"
)

// Defaults of Config.
const (
	DefaultNamespace      = "fairlead"
	DefaultLease          = "fairlead-controller"
	DefaultLeaseDuration  = 15 * time.Second
	DefaultStatusInterval = 5 * time.Second
)

// Config configures a Controller.
type Config struct {
	// Client configures the connection to the API server. Its rate limit is not used, but
	// the server's priority and fairness.
	Client *rest.Config
	// Namespace and Lease name the Lease for the election.
	Namespace, Lease string
	// Identity is this controller's name in the Lease; the default is the hostname with a
	// random suffix.
	Identity string
	// RequireClass ignores Services without spec.loadBalancerClass.
	RequireClass bool
	// GatewayAPI assigns addresses to Gateways, and writes the conditions of all related
	// objects, if the cluster has the Gateway API.
	GatewayAPI bool
	// LeaseDuration is how long the Lease of a dead leader keeps the others from leading; a
	// leader that cannot renew it for two thirds of it gives up. The default is 15s.
	LeaseDuration time.Duration
	// StatusInterval is the minimum interval between writes of an AddressPool's status; the
	// default is 5s.
	StatusInterval time.Duration
	// Cloud routes prefixes to the agents that offer them; nil for none.
	Cloud cloud.Provider
	Log   *slog.Logger
}

// Controller is one of the controllers of a cluster.
type Controller struct {
	Config
	api    kubeclient.Clients
	scheme *runtime.Scheme
	events *kubeclient.Recorder

	requests requests
	rounds   heartbeat.Rounds
	// leads means that this controller holds the Lease, term is its state once all has been
	// read. unasked is why the Lease could not be read or written last; nil before the first
	// attempt.
	leads   atomic.Bool
	term    atomic.Pointer[term]
	unasked atomic.Pointer[string]
}

// New creates a controller. It returns an error if the Config is invalid.
func New(c Config) (*Controller, error) {
	c.Namespace = cmp.Or(c.Namespace, DefaultNamespace)
	c.Lease = cmp.Or(c.Lease, DefaultLease)
	c.LeaseDuration = cmp.Or(c.LeaseDuration, DefaultLeaseDuration)
	c.StatusInterval = cmp.Or(c.StatusInterval, DefaultStatusInterval)
	c.Log = cmp.Or(c.Log, slog.Default())
	if c.Client == nil {
		return nil, errors.New("kube: Client is required")
	}
	if c.LeaseDuration < time.Second || c.LeaseDuration%time.Second != 0 {
		return nil, fmt.Errorf("kube: LeaseDuration %s must be whole seconds, at least 1s", c.LeaseDuration)
	}
	if c.Identity == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("kube: Identity is required, because the host has no name: %w", err)
		}
		c.Identity = host + "-" + string(uuid.NewUUID())
	}
	k := &Controller{Config: c, requests: newRequests()}
	var err error
	k.scheme, err = kubeclient.Scheme(corev1.AddToScheme, discoveryv1.AddToScheme, coordinationv1.AddToScheme, eventsv1.AddToScheme, v1alpha1.AddToScheme, gateway.AddToScheme)
	if err != nil {
		return nil, fmt.Errorf("kube: %w", err)
	}
	k.api, err = kubeclient.Connect(k.requests.counted(c.Client), k.scheme, corev1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion, coordinationv1.SchemeGroupVersion,
		eventsv1.SchemeGroupVersion, v1alpha1.GroupVersion, gateway.V1, gateway.V1Beta1, gateway.V1Alpha2)
	if err != nil {
		return nil, fmt.Errorf("kube: Client: %w", err)
	}
	return k, nil
}

// Run leads whenever it holds the Lease, until the context ends. Errors of the API server,
// missing permissions and missing resources are logged and retried.
func (k *Controller) Run(ctx context.Context) error {
	k.events = kubeclient.NewRecorder(k.api[eventsv1.SchemeGroupVersion], k.Log, kubeclient.Options{})
	defer k.events.Close()
	for ctx.Err() == nil {
		k.stand(ctx)
	}
	return nil
}

// Stuck returns why the controller must be restarted, or nil.
func (k *Controller) Stuck() error { return k.rounds.Stuck() }
