package crd

import (
	"slices"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/api/v1alpha1"
)

func TestSessionOf(t *testing.T) {
	since := time.Date(2026, 11, 1, 12, 0, 0, 7, time.UTC)
	o := SessionOf("n1", advertise.Peer{Name: "tor-1", Address: "10.0.0.1", State: "established", Since: since, BFD: "up", Sent: 12, Received: 7, Flaps: 3}, nil)
	want := v1alpha1.BGPSessionStatus{Node: "n1", Peer: "tor-1", PeerAddress: "10.0.0.1", State: "established", BFD: "up", AdvertisedPrefixes: 12}
	want.Since.Time = since.Truncate(time.Second)
	if diff := cmp.Diff(want, o.Status); diff != "" || o.Name != "n1--tor-1" {
		t.Errorf("%s: %s", o.Name, diff)
	}
	if diff := cmp.Diff(map[string]string{"fairlead.io/node": "n1", "fairlead.io/peer": "tor-1"}, o.Labels); diff != "" {
		t.Error(diff)
	}
	long := strings.Repeat("x", 2000)
	o = SessionOf("n1/web-1", advertise.Peer{Address: "2001:db8::1", LastError: long, BFD: long}, nil)
	if o.Status.Node != "n1/web-1" || o.Status.Peer != "2001:db8::1" || len(o.Status.LastError) > 1024 || len(o.Status.BFD) > 1024 {
		t.Errorf("%+v", o.Status)
	}
	if o.Name != "n1-web-1-2001-db8-1--144f7299225d30ba" || o.Labels["fairlead.io/node"] != "n1" {
		t.Errorf("%s: %v", o.Name, o.Labels)
	}
}

// TestSessionNames checks that names and labels are valid and unique, and readable if possible.
func TestSessionNames(t *testing.T) {
	long := strings.Repeat("rack-7.", 35) + "node"
	all := map[string][]string{}
	for _, parts := range [][]string{
		{"a", "b-c"}, {"a-b", "c"}, {"a.b", "c"}, {"a", "b.c"}, {"a", "b", "c"}, {"a--b", "c"}, {"a", "b--c"}, {"a", "b/c"}, {"a/b", "c"},
		{"n", "10.0.0.1"}, {"n", "10-0-0-1"}, {"n", "fe80::1%eth0"}, {"n", "fe80::1%eth1"}, {"n", "%eth0"}, {"n", "eth0"}, {"n", "::"}, {"%", "::"},
		{"N", "t"}, {"n", "t"}, {long, "t"}, {long, "t2"}, {long, "p", "t"}, {long, long}, {"ip-10-0-1-7.eu-west-1.compute.internal", "tor-1"},
	} {
		name := validName(253, parts...)
		if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 {
			t.Errorf("%q: %s: %q", parts, name, wrong)
		}
		if other := all[name]; other != nil {
			t.Errorf("%q and %q are both %s", parts, other, name)
		}
		if all[name] = parts; parts[len(parts)-1] == "tor-1" && name != strings.Join(parts, "--") {
			t.Errorf("%q is %s", parts, name)
		}
	}
	f := func(parts []string) bool {
		for _, limit := range []int{validation.LabelValueMaxLength, validation.DNS1123SubdomainMaxLength} {
			if name := validName(limit, append(parts, "peer")...); len(name) > limit || len(validation.IsDNS1123Subdomain(name)) > 0 {
				t.Log(name)
				return false
			}
		}
		return !slices.ContainsFunc(parts, func(p string) bool { return len(validation.IsValidLabelValue(labelValue(p))) > 0 })
	}
	if err := quick.Check(f, nil); err != nil {
		t.Error(err)
	}
}
