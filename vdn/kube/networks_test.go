package kube

import (
	"encoding/json"
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
)

// TestVirtualNetworkIsTheModel checks that a VirtualNetwork's spec has the fields of the
// model.
func TestVirtualNetworkIsTheModel(t *testing.T) {
	n := &v1alpha1.VirtualNetwork{ObjectMeta: metav1.ObjectMeta{Name: "science"}}
	text := `{"mode":"macvlan","devices":["eth1"],"subnets":[{"cidr":"172.20.0.0/16","gateway":"172.20.0.1",` +
		`"ranges":[{"first":"172.20.0.2","last":"172.20.0.9"}],"reserved":[{"address":"172.20.0.7","owner":"default/web"}]}],` +
		`"mtu":9000,"routes":[{"dst":"10.0.0.0/8","gw":"172.20.0.1"}],"dns":{"nameservers":["172.20.0.1"],"domain":"a.org","search":["b.org"],"options":["ndots:1"]},` +
		`"guaranteedRate":"400M","maxRate":"1.5G","maxRatePerHost":"100M","peerNetworks":["lab","busan/lab"],"allowedCIDRs":["192.0.2.0/24"],"sharedWith":["busan"]}`
	if err := yaml.UnmarshalStrict([]byte(text), &n.Spec); err != nil {
		t.Fatal(err)
	}
	got, err := networkOf(n)
	if err != nil {
		t.Fatal(err)
	}
	back, err := json.Marshal(got)
	if want := `{"name":"science",` + text[1:]; err != nil || string(back) != want {
		t.Errorf("%v\n got %s\nwant %s", err, back, want)
	}
	set := func(v reflect.Value) {
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("%s has no counterpart", v.Type().Field(i).Name)
			}
		}
	}
	set(reflect.ValueOf(got))
	set(reflect.ValueOf(got.Subnets[0]))
	set(reflect.ValueOf(got.DNS))
	n.Spec.GuaranteedRate = "fast"
	if _, err := networkOf(n); err == nil {
		t.Error("a rate that is none passes")
	}
}

// FuzzVirtualNetwork reads arbitrary JSON as a VirtualNetwork and checks the network's
// name.
func FuzzVirtualNetwork(f *testing.F) {
	for _, text := range []string{
		`{"metadata":{"name":"a"},"spec":{"devices":["eth1"],"subnets":[{"cidr":"10.9.0.0/24","gateway":"10.9.0.1"}],"maxRate":"400M","guaranteedRate":"1.5G"}}`,
		`{"spec":{"subnets":[{"cidr":"x"}],"maxRate":-1}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		fuzzlimit.Time(t)
		var n v1alpha1.VirtualNetwork
		if json.Unmarshal(text, &n) != nil {
			return
		}
		if made, err := networkOf(&n); err == nil && made.Name != n.Name {
			t.Errorf("%s is network %q", text, made.Name)
		}
	})
}
