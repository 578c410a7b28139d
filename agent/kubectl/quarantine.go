package kubectl

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/agent/quarantine"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/kubeclient"
	"github.com/fairlead/fairlead/source/crd"
)

// Quarantine is an order to drain a backend on all nodes, or the end of one.
type Quarantine struct {
	// Backend is "ADDR" or "ADDR:PORT", Service "namespace/name" or empty for all.
	Backend, Service, Reason string
	// Force drains a backend even if it is the last one of a Service.
	Force bool
}

// connect returns the order, and a client of the API server.
func (o Quarantine) connect(c Config) (q service.Quarantine, client rest.Interface, err error) {
	if q, err = crd.NewQuarantine(o.Backend, o.Service); err == nil {
		_, client, err = connect(c, discoveryv1.AddToScheme, discoveryv1.SchemeGroupVersion)
	}
	return q, client, err
}

// Drain creates a Quarantine with the credentials of the user.
func Drain(ctx context.Context, c Config, order Quarantine, out io.Writer) error {
	q, client, err := order.connect(c)
	if err != nil {
		return err
	}
	uses, err := usesOf(ctx, client, q)
	if err != nil {
		return err
	}
	if err := quarantine.Check(&q, uses, order.Force); err != nil {
		return err
	}
	q.Reason, q.By, q.Since = order.Reason, operator(ctx, client), time.Now()
	body, err := crd.QuarantineManifest(q)
	if err != nil {
		return err
	}
	err = client.Post().AbsPath(crd.Quarantines).SetHeader("Content-Type", "application/yaml").Body(body).Do(ctx).Error()
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("%s is drained already: kubectl get quarantine %s", order.Backend, q.Name)
	}
	if err == nil {
		fmt.Fprintf(out, "%s gets no new flows on any node (kubectl get quarantine %s)\n", order.Backend, q.Name)
	}
	return err
}

// Undrain deletes a Quarantine.
func Undrain(ctx context.Context, c Config, order Quarantine, out io.Writer) error {
	q, client, err := order.connect(c)
	if err != nil {
		return err
	}
	err = client.Delete().AbsPath(crd.Quarantines, q.Name).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	all, listErr := quarantines(ctx, client)
	for _, other := range all {
		if other.Addr == q.Addr && other.Name != q.Name && (other.Port == 0 || q.Port == 0 || other.Port == q.Port) {
			return fmt.Errorf("%s is drained by the Quarantine %s: fairlead undrain --backend %s", order.Backend, other.Name, other.Flags())
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("%s is not drained: there is no Quarantine %s", order.Backend, q.Name)
	case listErr != nil:
		return listErr
	}
	fmt.Fprintf(out, "%s takes new flows on all nodes again\n", order.Backend)
	return nil
}

func quarantines(ctx context.Context, client rest.Interface) ([]service.Quarantine, error) {
	text, err := client.Get().AbsPath(crd.Quarantines).SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	return crd.ReadQuarantines(text)
}

// pageSize is the number of EndpointSlices in one request.
const pageSize = 500

// usesOf returns the endpoints of the cluster's Services, or of the Service of an order.
func usesOf(ctx context.Context, client rest.Interface, q service.Quarantine) (all []quarantine.Use, err error) {
	drained, err := quarantines(ctx, client)
	if err != nil {
		return nil, err
	}
	o := metav1.ListOptions{Limit: pageSize, LabelSelector: discoveryv1.LabelServiceName}
	if q.Service.Name != "" {
		o.LabelSelector += "=" + q.Service.Name
	}
	slices := kubeclient.Of[*discoveryv1.EndpointSlice, *discoveryv1.EndpointSliceList](client, "endpointslices", q.Service.Namespace)
	for {
		page, err := slices.List(ctx, o)
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			all = append(all, usesIn(&page.Items[i], drained)...)
		}
		if o.Continue = page.Continue; o.Continue == "" {
			return all, nil
		}
	}
}

// usesIn returns the endpoints of a slice, for each port. They take new flows if they are
// ready and not drained.
func usesIn(s *discoveryv1.EndpointSlice, drained []service.Quarantine) (all []quarantine.Use) {
	id := service.ID{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
	for _, e := range s.Endpoints {
		addr, err := netip.ParseAddr(append(e.Addresses, "")[0])
		if err != nil {
			continue
		}
		b := service.Backend{}
		if e.TargetRef != nil {
			b.Name = e.TargetRef.Name
		} else if e.Hostname != nil {
			b.Name = *e.Hostname
		}
		for _, p := range s.Ports {
			if p.Port == nil {
				continue
			}
			b.Addr = netip.AddrPortFrom(addr, uint16(*p.Port))
			u := quarantine.Use{Service: id, Frontend: fmt.Sprintf("%s/%d", s.AddressType, *p.Port), Backend: b, Takes: e.Conditions.Ready == nil || *e.Conditions.Ready}
			if p.Name != nil {
				u.Frontend = string(s.AddressType) + "/" + *p.Name
			}
			for i := range drained {
				u.Takes = u.Takes && !drained[i].Covers(id, b)
			}
			all = append(all, u)
		}
	}
	return all
}

// operator returns the user's name according to the API server, or that on this machine.
func operator(ctx context.Context, client rest.Interface) string {
	review := struct {
		Status struct {
			UserInfo struct {
				Username string `json:"username"`
			} `json:"userInfo"`
		} `json:"status"`
	}{}
	text, err := client.Post().AbsPath("/apis/authentication.k8s.io/v1/selfsubjectreviews").SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json").
		Body([]byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`)).Do(ctx).Raw()
	if err == nil {
		err = json.Unmarshal(text, &review)
	}
	if name := review.Status.UserInfo.Username; err == nil && name != "" {
		return name
	}
	return quarantine.Operator()
}
