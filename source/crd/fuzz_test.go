package crd

import (
	"encoding/json"
	"testing"

	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
)

// FuzzResources reads arbitrary JSON as each of the resources. Errors name invalid fields;
// valid results are within their limits.
func FuzzResources(f *testing.F) {
	for _, text := range []string{
		`{"metadata":{"name":"a"},"spec":{"addresses":["10.1.1.0/24","10.1.2.1-10.1.2.9"],"reserved":["10.1.1.1"],"serviceSelector":{"matchLabels":{"a":"b"}}}}`,
		`{"metadata":{"name":"a"},"spec":{"peerAddress":"10.0.0.1","peerASN":65001,"port":1790,"holdTimeSeconds":30,"ttlSecurity":1,"bfd":{"enabled":false}}}`,
		`{"metadata":{"name":"a"},"spec":{"peerAddress":"fe80::1","interface":"eth0","nodeSelector":{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]}}}`,
		`{"metadata":{"name":"a"},"spec":{"pools":["p"],"communities":["65000:1","no-export"],"aggregationLength":24,"peers":["rack-1"],"weightBy":"Endpoints","mode":"BGP"}}`,
		`{"spec":{"addresses":["10.1.1.1/24",""],"serviceSelector":{"matchExpressions":[{"operator":"x"}]},"peerASN":-1,"asPathPrepend":99}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		fuzzlimit.Time(t)
		checkPool(t, text)
		var p v1alpha1.BGPPeer
		if json.Unmarshal(text, &p) == nil {
			if made, err := ParsePeer(&p); err != nil {
				wantFields(t, text, err)
			} else if made.Interface == "" && !made.Address.Addr().IsValid() {
				t.Errorf("%s is taken as %+v", text, made)
			}
		}
		var a v1alpha1.Advertisement
		if json.Unmarshal(text, &a) == nil {
			for _, w := range wrongOf(&a) {
				wantFields(t, text, w.Err)
			}
		}
	})
}

func checkPool(t *testing.T, text []byte) {
	t.Helper()
	var p v1alpha1.AddressPool
	if json.Unmarshal(text, &p) != nil {
		return
	}
	made, err := ParsePool(&p)
	if err != nil {
		wantFields(t, text, err)
		return
	}
	for _, r := range made.Addresses {
		if !r.Contains(r.First) || r.Last.Less(r.First) {
			t.Errorf("%s has %s", text, r)
		}
	}
}

func wrongOf(a *v1alpha1.Advertisement) []Wrong {
	_, wrong := AdvertisedBy([]*v1alpha1.Advertisement{a}, nil, nil)
	return wrong
}

// wantFields requires an error to name the invalid fields.
func wantFields(t *testing.T, text []byte, err error) {
	t.Helper()
	all := FieldErrors(err)
	if len(all) == 0 {
		t.Errorf("%s: %v names no field", text, err)
	}
	for _, one := range all {
		if one.Field == "" || one.Message == "" {
			t.Errorf("%s: %+v", text, one)
		}
	}
}
