package crd

import (
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/core/service"
)

func read(text []byte) (service.Quarantine, error) {
	q := &v1alpha1.Quarantine{}
	if err := yaml.UnmarshalStrict(text, q); err != nil {
		return service.Quarantine{}, err
	}
	return ParseQuarantine(q)
}

func TestNewQuarantine(t *testing.T) {
	for _, c := range []struct{ backend, of, name, err string }{
		{"172.16.1.10", "", "172.16.1.10", ""},
		{"172.16.1.10:8080", "default/web", "172.16.1.10-8080.default.web", ""},
		{"::ffff:172.16.1.10", "", "172.16.1.10", ""},
		{"2001:db8::", "", "2001-0db8-0000-0000-0000-0000-0000-0000", ""},
		{"[2001:db8::1]:80", "", "2001-0db8-0000-0000-0000-0000-0000-0001-80", ""},
		{"web-1", "", "", `"web-1" is not the address of a backend, as in 172.16.1.10, 172.16.1.10:8080 or [2001:db8::10]:8080`},
		{"172.16.1.10", "web", "", `--service: "web" is not namespace/name`},
		{"172.16.1.10", "/web", "", `spec.service: "/web" is not the name of a Service: want one like default/web`},
		{"0.0.0.0", "", "", "spec.address: 0.0.0.0 is not the address of a backend"},
		{"fe80::1%eth0", "", "", `spec.address: "fe80::1%eth0" is not an IP address`},
	} {
		q, err := NewQuarantine(c.backend, c.of)
		if err != nil && err.Error() != c.err || err == nil && (c.err != "" || q.Name != c.name) {
			t.Errorf("%s %s: %q, %v; want %q, %q", c.backend, c.of, q.Name, err, c.name, c.err)
		}
		if err != nil {
			continue
		}
		q.Backend, q.Reason, q.By, q.Since = "web-1", "a: \"b\"\n# c", "alice", time.Date(2026, 11, 28, 23, 0, 0, 0, time.UTC)
		text, err := QuarantineManifest(q)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := read(text); err != nil || got != q {
			t.Errorf("got %+v, %v; want %+v from\n%s", got, err, q, text)
		}
	}
}
