package xdp

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/core/service"
)

// TestTableDigest programs a frontend in two ways: its digest is the same whatever order and
// numbers the backends have, and differs with a weight.
func TestTableDigest(t *testing.T) {
	f := frontend(service.Tunnel, "10.1.1.1:80", service.TCP, "172.16.1.10:80")
	second := f.Backends[0]
	second.Addr = netip.MustParseAddrPort("172.16.2.10:80")
	f.Backends = append(f.Backends, second)
	d := newNet(t).open(t, config())
	digest := func() string {
		p, err := d.Read(f.Key)
		must(t, err)
		if p == nil {
			return ""
		}
		return p.Digest
	}
	upsert(t, d, f)
	one := digest()

	must(t, d.Delete(f.Key))
	if gone := digest(); one == "" || gone != "" {
		t.Errorf("the digest is %q, %q without the frontend", one, gone)
	}
	upsert(t, d, frontend(service.Tunnel, "10.1.1.7:80", service.TCP, "172.16.2.10:80"))
	slices.Reverse(f.Backends)
	upsert(t, d, f)
	if other := digest(); one != other {
		t.Errorf("digests %q and %q of the same backends", one, other)
	}
	f.Backends[0].Weight = 3
	upsert(t, d, f)
	if other := digest(); one == other {
		t.Error("another weight has the same digest")
	}
}
