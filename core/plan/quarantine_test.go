package plan

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/service"
)

func TestQuarantines(t *testing.T) {
	at := time.Date(2026, 11, 28, 23, 0, 0, 0, time.UTC)
	web := service.ID{Namespace: "default", Name: "web"}
	one := netip.MustParseAddr("172.16.1.1")
	for name, c := range map[string]struct {
		order service.Quarantine
		want  string
	}{
		"an address":       {service.Quarantine{Addr: one}, "172.16.1.1:80=0 172.16.1.1:81=0 172.16.1.2:80=2 172.16.1.3:80=0"},
		"a port":           {service.Quarantine{Addr: one, Port: 81}, "172.16.1.1:80=1 172.16.1.1:81=0 172.16.1.2:80=2 172.16.1.3:80=0"},
		"a Service":        {service.Quarantine{Addr: one, Service: web}, "172.16.1.1:80=0 172.16.1.1:81=0 172.16.1.2:80=2 172.16.1.3:80=0"},
		"another Service":  {service.Quarantine{Addr: one, Service: service.ID{Namespace: "default", Name: "api"}}, "172.16.1.1:80=1 172.16.1.1:81=1 172.16.1.2:80=2 172.16.1.3:80=0"},
		"a name":           {service.Quarantine{Addr: one, Backend: "pod-1"}, "172.16.1.1:80=0 172.16.1.1:81=0 172.16.1.2:80=2 172.16.1.3:80=0"},
		"the former pod":   {service.Quarantine{Addr: one, Backend: "pod-0"}, "172.16.1.1:80=1 172.16.1.1:81=1 172.16.1.2:80=2 172.16.1.3:80=0"},
		"one that drained": {service.Quarantine{Addr: netip.MustParseAddr("172.16.1.3")}, "172.16.1.1:80=1 172.16.1.1:81=1 172.16.1.2:80=2 172.16.1.3:80=0"},
	} {
		c.order.Since = at
		s := &service.Service{ID: web, Health: service.HealthCheck{Kind: service.CheckNone}, Frontends: []service.Frontend{{
			Key: service.Key{VIP: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: service.TCP},
			Backends: []service.Backend{
				{Addr: netip.MustParseAddrPort("172.16.1.1:80"), Weight: 1, Name: "pod-1"}, {Addr: netip.MustParseAddrPort("172.16.1.1:81"), Weight: 1, Name: "pod-1"},
				{Addr: netip.MustParseAddrPort("172.16.1.2:80"), Weight: 2}, {Addr: netip.MustParseAddrPort("172.16.1.3:80"), Drained: at.Add(-time.Hour)},
			},
		}}}
		p := Build(Input{Services: []*service.Service{s}, Quarantines: []service.Quarantine{c.order}})
		var got []string
		for i, b := range p.Frontends[0].Want.Backends {
			got = append(got, fmt.Sprintf("%s=%d", b.Addr, b.Weight))
			if was := s.Frontends[0].Backends[i]; was.Weight > 0 && b.Weight == 0 && !b.Drained.Equal(at) || was.Weight == 0 && !b.Drained.Equal(was.Drained) {
				t.Errorf("%s: %s drained at %v", name, b.Addr, b.Drained)
			}
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: got %s, want %s", name, text, c.want)
		}
		if s.Frontends[0].Backends[0].Weight != 1 {
			t.Errorf("%s: the Service was changed, which is immutable", name)
		}
	}
}

// Panic mode does not return a drained backend to service.
func TestQuarantineInPanic(t *testing.T) {
	s := &service.Service{ID: service.ID{Namespace: "default", Name: "web"}, Panic: true, Health: service.HealthCheck{Kind: service.CheckTCP}, Frontends: []service.Frontend{{
		Key:      service.Key{VIP: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: service.TCP},
		Backends: []service.Backend{{Addr: netip.MustParseAddrPort("172.16.1.1:80"), Weight: 1}, {Addr: netip.MustParseAddrPort("172.16.1.2:80"), Weight: 1}},
	}}}
	p := Build(Input{
		Services: []*service.Service{s}, Quarantines: []service.Quarantine{{Addr: netip.MustParseAddr("172.16.1.1")}},
		Health: func(health.Target) health.State { return health.Down },
	})
	if f := p.Frontends[0]; f.State != Panic || f.Want.Backends[0].Weight != 0 || f.Want.Backends[1].Weight != 1 {
		t.Errorf("state %s, %+v; want panic, and only the second backend with a weight", f.State, f.Want)
	}
}
