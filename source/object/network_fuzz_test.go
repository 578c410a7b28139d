package object

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
)

// FuzzNetworkStatus checks that an arbitrary network status of a Pod is rejected with a
// message, or has the networks of the JSON; an address counts only for its family.
func FuzzNetworkStatus(f *testing.F) {
	for _, text := range []string{
		`[{"name":"default/science","interface":"net1","ips":["10.1.0.5","fd00::5"],"mac":"02:00:00:00:00:05"}]`, `[{"name":"cbr0","ips":["10.244.0.9"],"default":true}]`,
		`[]`, `null`, `[null]`, `{}`, `[{"ips":["10.1.0.0/24"]}]`, `[{"ips":[""]}]`, `[{"ips":["::ffff:10.1.0.5"]}]`,
	} {
		f.Add(text, "science")
	}
	f.Fuzz(func(t *testing.T, text, network string) {
		fuzzlimit.Time(t)
		o, faults := ReadPod(&metav1.ObjectMeta{Namespace: "default", Name: "web", Annotations: map[string]string{AnnotationNetworkStatus: text}}, Origin{})
		if len(faults) > 0 {
			if o.Attached() || faults[0].Field != annotation(AnnotationNetworkStatus) || faults[0].Message == "" {
				t.Errorf("%q is refused by %+v, attached %v", text, faults, o.Attached())
			}
			return
		}
		var want []any
		if err := json.Unmarshal([]byte(text), &want); err != nil || len(o.pod.networks) != len(want) {
			t.Errorf("%q is %d networks, want %d", text, len(o.pod.networks), len(want))
		}
		for _, ipv6 := range []bool{false, true} {
			addrs, on := o.on(network, ipv6)
			for _, a := range addrs {
				if !on || a.Is6() != ipv6 {
					t.Errorf("%q: %s on %s, IPv6 %v", text, a, network, ipv6)
				}
			}
		}
		_ = o.networks()
	})
}
