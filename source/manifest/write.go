package manifest

import (
	"bytes"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/internal/atomicfile"
	"github.com/fairlead/fairlead/source/object"
)

// WriteFile writes Services and EndpointSlices to a file in a directory of manifests
// atomically: readers see the complete old text or the complete new one. It fills in kind
// and apiVersion.
func WriteFile(dir, name string, objs ...runtime.Object) error {
	var text bytes.Buffer
	for _, o := range objs {
		o, err := typed(o)
		if err != nil {
			return err
		}
		b, err := yaml.Marshal(o)
		if err != nil {
			return err
		}
		text.WriteString("---\n")
		text.Write(b)
	}
	return atomicfile.Write(filepath.Join(dir, name), 0o644, &text)
}

// typed returns a copy of an object with its kind and apiVersion.
func typed(o runtime.Object) (runtime.Object, error) {
	switch o := o.DeepCopyObject().(type) {
	case *corev1.Service:
		o.TypeMeta = metav1.TypeMeta{APIVersion: apiVersions[object.KindService], Kind: object.KindService}
		return o, nil
	case *discoveryv1.EndpointSlice:
		o.TypeMeta = metav1.TypeMeta{APIVersion: apiVersions[object.KindSlice], Kind: object.KindSlice}
		return o, nil
	}
	return nil, fmt.Errorf("%T is not read from manifests; want *v1.Service or *v1.EndpointSlice", o)
}
