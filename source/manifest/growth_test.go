package manifest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/lab/testkit/growth"
)

// TestReadsLinearly reads and joins ten times as many Services from one file, the second
// time without changes.
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
				services, problems := j.join(f.objects, byKey(f.objects), nil)
				if len(services) != size || len(problems) > 0 || len(f.problems) > 0 {
					t.Fatalf("%d services, problems %v %v", len(services), problems, f.problems)
				}
			}
		}
	})
}

// TestChoosesLinearly restarts an agent in a directory with two files of the same Services,
// ten times as many the second time.
func TestChoosesLinearly(t *testing.T) {
	growth.Linear(t, 50, func(size int) func() {
		var text strings.Builder
		for i := range size {
			fmt.Fprintf(&text, "apiVersion: v1\nkind: Service\nmetadata: {name: web-%d, annotations: {fairlead.io/addresses: 10.1.%d.%d}}\n"+
				"spec: {type: LoadBalancer, ports: [{port: 80}]}\n---\n", i, i>>8, i&255)
		}
		l := newLooker(t)
		l.write("a.yaml", text.String())
		l.write("b.yaml", text.String())
		l.rest()
		l.restart()
		l.d.look(l.now)
		return func() {
			l.d.inUse = nil
			if s := l.d.snapshot(); len(s.Services) != size || len(s.Problems) != size || !strings.Contains(s.Problems[0].Message, "was there first") {
				t.Fatalf("%d services, %d problems", len(s.Services), len(s.Problems))
			}
		}
	})
}
