package quarantine

import (
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/source/crd"
)

func TestCheck(t *testing.T) {
	web, api := service.ID{Namespace: "default", Name: "web"}, service.ID{Namespace: "default", Name: "api"}
	use := func(id service.ID, frontend, addr, name string, takes bool) Use {
		return Use{id, frontend, service.Backend{Addr: netip.MustParseAddrPort(addr), Name: name}, takes}
	}
	uses := []Use{
		use(web, "80", "172.16.1.10:8080", "web-1", true), use(web, "80", "172.16.1.11:8080", "web-2", true),
		use(web, "443", "172.16.1.10:8443", "web-1", true), use(web, "443", "172.16.1.11:8443", "web-2", false),
		use(api, "53", "172.16.1.11:53", "api-1", true), use(api, "53", "172.16.1.12:53", "api-2", true),
		use(api, "53", "[2001:db8::1]:53", "api-3", true),
	}
	for _, c := range []struct{ backend, of, err, name string }{
		{"172.16.1.10:8080", "", "", "web-1"},
		{"172.16.1.10", "", "172.16.1.10 is the last backend that takes new flows of Service default/web: start another, or drain it with --force", ""},
		{"172.16.1.10:8443", "default/web", "172.16.1.10:8443 is the last backend that takes new flows of Service default/web: start another, or drain it with --force", ""},
		{"172.16.1.11", "", "", ""}, // two names; one of its frontends gets no flows from it already
		{"172.16.1.11", "default/api", "", "api-1"},
		{"2001:db8::1", "", "", "api-3"},
		{"172.16.1.10", "default/api", `unknown backend 172.16.1.10 of Service default/api; did you mean "172.16.1.11"?: see fairlead get backends`, ""},
		{"172.16.1.13:53", "", `unknown backend 172.16.1.13:53; did you mean "172.16.1.11:53"?: see fairlead get backends`, ""},
		{"10.9.9.9", "", "unknown backend 10.9.9.9: see fairlead get backends", ""},
	} {
		q, err := crd.NewQuarantine(c.backend, c.of)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := Check(&q, uses, false); err != nil {
			got = err.Error()
		}
		if got != c.err || q.Backend != c.name {
			t.Errorf("%s in %q: %q, name %q; want %q, %q", c.backend, c.of, got, q.Backend, c.err, c.name)
		}
		if err := Check(&q, uses, true); (err != nil) != (c.name == "" && len(c.err) > 7 && c.err[:7] == "unknown") {
			t.Errorf("%s in %q with --force: %v", c.backend, c.of, err)
		}
	}
}
