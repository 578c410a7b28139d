package check

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/source/manifest"
)

// TestGrowth checks that the time grows with the number of objects, also if each has
// findings of several kinds.
func TestGrowth(t *testing.T) {
	took := func(n int) time.Duration {
		var b strings.Builder
		b.WriteString("apiVersion: fairlead.io/v1alpha1\nkind: AddressPool\nmetadata: {name: blue}\nspec: {addresses: [10.9.0.0/24]}\n---\n")
		b.WriteString("apiVersion: fairlead.io/v1alpha1\nkind: Advertisement\nmetadata: {name: blue}\nspec: {pools: [blue]}\n")
		for i := range n {
			fmt.Fprintf(&b, `---
apiVersion: v1
kind: Service
metadata: {name: s%d, annotations: {fairlead.io/addresses: 10.%d.%d.%d, fairlead.io/address-pool: red}}
spec: {type: LoadBalancer, ports: [{port: 80, name: a}, {port: 81, name: b}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: s%d-1, labels: {kubernetes.io/service-name: s%d}}
addressType: IPv4
ports: [{port: 80, name: a}]
endpoints: [{addresses: [172.16.1.1, 172.16.1.2]}]
`, i, 10+i>>16, i>>8&255, i&255, i, i)
		}
		start := time.Now()
		found, err := Run(Config{Reading: manifest.Reading{Paths: []string{manifest.Stdin}, Stdin: []byte(b.String())}, DataPlanes: []string{"xdp"}})
		if err != nil || len(found) < 3*n {
			t.Fatalf("%d Services: %d findings, %v", n, len(found), err)
		}
		return time.Since(start)
	}
	const n = 500
	took(n) // warm
	for range 3 {
		small, large := took(n), took(8*n)
		if large < 24*small {
			return
		}
		t.Logf("%d Services take %s, %d take %s", n, small, 8*n, large)
	}
	t.Error("the time grows faster than the number of Services")
}
