package api

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
)

// FuzzFlowQuery checks that a query is either rejected with an error that names the
// parameter, or has valid addresses and no negative number.
func FuzzFlowQuery(f *testing.F) {
	for _, q := range []string{"", "vip=10.1.1.1:80&limit=3", "client=::1&backend=[fd00::1]:80", "limit=-1", "vip=x", "vip=%zz"} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, query string) {
		fuzzlimit.Time(t)
		values, _ := url.ParseQuery(query)
		q, err := FlowQuery(values)
		if err != nil {
			key, _, _ := strings.Cut(err.Error(), ":")
			if !values.Has(key) {
				t.Errorf("%q: %v names no part of it", query, err)
			}
			return
		}
		if q.Limit < 0 || values.Get("vip") != "" != q.VIP.IsValid() && q.VIP.Port() != 0 {
			t.Errorf("%q is taken as %+v", query, q)
		}
	})
}

func TestFlowQuery(t *testing.T) {
	one := dataplane.Flow{
		Client: netip.MustParseAddrPort("192.0.2.7:1234"), VIP: netip.MustParseAddrPort("10.1.1.1:80"),
		Server: netip.MustParseAddrPort("172.16.5.1:8080"), Protocol: service.TCP,
	}
	for query, want := range map[string]bool{
		"": true, "vip=10.1.1.1": true, "vip=10.1.1.1:80": true, "vip=10.1.1.1:81": false, "vip=10.1.1.2": false,
		"client=192.0.2.7&backend=172.16.5.1:8080": true, "client=192.0.2.7&backend=172.16.5.2": false, "limit=3": true,
	} {
		q, err := FlowQuery(mustQuery(t, query))
		if err != nil || q.Takes(one) != want {
			t.Errorf("%q: %v, %v", query, !want, err)
		}
	}
	if q, err := FlowQuery(mustQuery(t, "limit=2")); err != nil || q.Limit != 2 {
		t.Errorf("%+v, %v", q, err)
	}
	for _, bad := range []string{"vip=x", "limit=x", "limit=-1"} {
		if _, err := FlowQuery(mustQuery(t, bad)); err == nil {
			t.Errorf("%s passes", bad)
		}
	}
}

func mustQuery(t *testing.T, q string) map[string][]string {
	t.Helper()
	values := map[string][]string{}
	for _, pair := range strings.Split(q, "&") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			values[key] = []string{value}
		}
	}
	return values
}
