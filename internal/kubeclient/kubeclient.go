// Package kubeclient accesses the API server for the few kinds that Fairlead reads and
// writes: REST clients that share connections, typed requests, and Events. It replaces
// client-go's clientset, which compiles every API group of Kubernetes into a program. What
// objects mean does not belong here.
package kubeclient

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

// Clients are REST clients by group and version.
type Clients map[schema.GroupVersion]rest.Interface

// Connect returns a client for each of some groups and versions, whose kinds are in the
// scheme. It does not send anything. Kubernetes' own kinds are encoded as protobuf, custom
// resources as JSON. The rate limit in config is not used: the server's priority and
// fairness applies.
func Connect(config *rest.Config, scheme *runtime.Scheme, versions ...schema.GroupVersion) (Clients, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	if config.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	all := Clients{}
	for _, v := range versions {
		one := rest.CopyConfig(config)
		one.GroupVersion, one.APIPath = &v, "/apis"
		if v.Group == "" {
			one.APIPath = "/api"
		}
		one.ContentType, one.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
		if hasProtobuf(scheme, v) {
			one.ContentType, one.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
		}
		if all[v], err = rest.RESTClientForConfigAndClient(one, http); err != nil {
			return nil, fmt.Errorf("%s: %w", v, err)
		}
	}
	return all, nil
}

// hasProtobuf reports whether the kinds of a group are Kubernetes' own.
func hasProtobuf(scheme *runtime.Scheme, v schema.GroupVersion) bool {
	for _, t := range scheme.KnownTypes(v) {
		if strings.HasPrefix(t.PkgPath(), "k8s.io/api/") {
			return true
		}
	}
	return false
}

// Scheme returns a scheme with what functions like corev1.AddToScheme add.
func Scheme(add ...func(*runtime.Scheme) error) (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, a := range add {
		if err := a(s); err != nil {
			return nil, err
		}
	}
	return s, nil
}
