package kube

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
)

// servedWithin is how long the API server may take to serve a new kind.
const servedWithin = time.Minute

// Apply creates or changes the objects of a YAML text, as kubectl apply --server-side
// does. It waits for kinds that are not served yet, because their definition may be new.
func (c *Cluster) Apply(ctx context.Context, text string) error {
	client, err := rest.HTTPClientFor(c.Config)
	if err != nil {
		return err
	}
	server := &plain{client, c.Config.Host}
	ctx, cancel := context.WithTimeout(ctx, servedWithin)
	defer cancel()
	for dec := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096); ; {
		var o unstructured.Unstructured
		if err := dec.Decode(&o.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if len(o.Object) == 0 {
			continue
		}
		if err := server.apply(ctx, &o); err != nil {
			return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
}

// plain sends JSON requests to an API server, for kinds that it does not know.
// (client-go's dynamic and discovery clients do the same, but link all API groups.)
type plain struct {
	*http.Client
	host string
}

func (p *plain) apply(ctx context.Context, o *unstructured.Unstructured) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	for {
		r, err := p.resourceOf(ctx, o.GroupVersionKind())
		if err == nil {
			path := groupPath(o.GroupVersionKind().GroupVersion())
			if r.Namespaced {
				path += "/namespaces/" + url.PathEscape(cmp.Or(o.GetNamespace(), metav1.NamespaceDefault))
			}
			path += "/" + r.Name + "/" + url.PathEscape(o.GetName()) + "?fieldManager=lab&force=true"
			err = p.do(ctx, http.MethodPatch, path, string(types.ApplyPatchType), text, nil)
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func groupPath(v schema.GroupVersion) string {
	if v.Group == "" {
		return "/api/" + v.Version
	}
	return "/apis/" + v.String()
}

// resourceOf returns the resource of a kind.
func (p *plain) resourceOf(ctx context.Context, k schema.GroupVersionKind) (metav1.APIResource, error) {
	var all metav1.APIResourceList
	if err := p.do(ctx, http.MethodGet, groupPath(k.GroupVersion()), "", nil, &all); err != nil {
		return metav1.APIResource{}, err
	}
	for _, r := range all.APIResources {
		if r.Kind == k.Kind && !strings.Contains(r.Name, "/") {
			return r, nil
		}
	}
	return metav1.APIResource{}, apierrors.NewNotFound(schema.GroupResource{Group: k.Group}, k.Kind)
}

// do makes a request; into may be nil. If the server rejects it, do returns client-go's
// error type.
func (p *plain) do(ctx context.Context, method, path, contentType string, body []byte, into any) error {
	r, err := http.NewRequestWithContext(ctx, method, p.host+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "application/json")
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	answer, err := p.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode >= 300 {
		refused := &apierrors.StatusError{}
		if json.Unmarshal(text, &refused.ErrStatus) != nil || refused.ErrStatus.Status != metav1.StatusFailure {
			refused.ErrStatus = metav1.Status{Status: metav1.StatusFailure, Code: int32(answer.StatusCode), Message: string(text)}
			if answer.StatusCode == http.StatusNotFound { // the group is not served yet
				refused.ErrStatus.Reason = metav1.StatusReasonNotFound
			}
		}
		return refused
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}
