package manifest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/lab/testkit/growth"
)

// TestReadsLinearly reads ten times as many Services out of one file, and joins them,
// the second time with nothing changed.
func TestReadsLinearly(t *testing.T) {
	growth.Linear(t, 200, func(size int) func() {
		var text strings.Builder
		for i := range size {
			fmt.Fprintf(&text, `apiVersion: v1
kind: Service
metadata: {name: web-%d, annotations: {fairlead.io/addresses: 10.1.%d.%d}}
spec: {type: LoadBalancer, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-%d-1, labels: {kubernetes.io/service-name: web-%d}}
addressType: IPv4
ports: [{port: 80}]
endpoints: [{addresses: [172.16.%d.%d]}]
---
`, i, i>>8, i&255, i, i, i>>8, i&255)
		}
		return func() {
			f := parseFile("many.yaml", []byte(text.String()))
			var j joiner
			for range 2 {
				services, problems := j.join(f.objects, nil)
				if len(services) != size || len(problems) > 0 || len(f.problems) > 0 {
					t.Fatalf("%d services, problems %v %v", len(services), problems, f.problems)
				}
			}
		}
	})
}
