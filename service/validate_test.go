package service_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/service"
)

func valid() *service.Service {
	return &service.Service{
		ID:        service.ID{Namespace: "default", Name: "web"},
		Method:    service.DefaultMethod,
		Scheduler: service.DefaultScheduler,
		RingSize:  service.DefaultRingSize,
		Health:    service.DefaultHealthCheck,
		Panic:     true,
		Prefixes:  []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24")},
		Frontends: []service.Frontend{
			{Key: service.Key{VIP: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: service.TCP}, Backends: backends("172.16.1.2:80", "172.16.1.3:80")},
			{Key: service.Key{VIP: netip.MustParseAddr("2001:db8::1"), Port: 80, Protocol: service.UDP}, Backends: backends("[2001:db8:1::2]:80")},
		},
	}
}

func backends(addrs ...string) (bs []service.Backend) {
	for _, a := range addrs {
		bs = append(bs, service.Backend{Addr: netip.MustParseAddrPort(a), Weight: 1})
	}
	return bs
}

func TestValidate(t *testing.T) {
	vip := func(s string) func(*service.Service) {
		return func(x *service.Service) { x.Prefixes = nil; x.Frontends[0].VIP, _ = netip.ParseAddr(s) }
	}
	for name, c := range map[string]struct {
		change func(*service.Service)
		want   string // "" for valid, else a part of the only error
	}{
		"as it is":                 {func(s *service.Service) {}, ""},
		"no namespace":             {func(s *service.Service) { s.ID.Namespace = "" }, "id.namespace: is empty"},
		"no name":                  {func(s *service.Service) { s.ID.Name = "" }, "id.name: is empty"},
		"unknown method":           {func(s *service.Service) { s.Method = "tunel" }, `method: unknown method "tunel"; want nat, fullnat, direct-nat, dr or tunnel`},
		"unknown scheduler":        {func(s *service.Service) { s.Scheduler = "" }, `scheduler: unknown scheduler ""; want maglev, rr, wrr, lc, wlc, sh, dh or p2c`},
		"ring size not prime":      {func(s *service.Service) { s.RingSize = 16380 }, "ringSize: 16380 is not a prime; the nearest are 16369 and 16381"},
		"ring size a square":       {func(s *service.Service) { s.RingSize = 361 }, "ringSize: 361 is not a prime; the nearest are 359 and 367"},
		"ring size even":           {func(s *service.Service) { s.RingSize = 131070 }, "ringSize: 131070 is not a prime; the nearest are 131063 and 131071"},
		"smallest ring":            {func(s *service.Service) { s.RingSize = 251 }, ""},
		"largest ring":             {func(s *service.Service) { s.RingSize = 131071 }, ""},
		"ring too small":           {func(s *service.Service) { s.RingSize = 241 }, "ringSize: 241 is out of range; want a prime from 251 to 131071"},
		"ring too large":           {func(s *service.Service) { s.RingSize = 131101 }, "ringSize: 131101 is out of range"},
		"ring negative":            {func(s *service.Service) { s.RingSize = -7 }, "ringSize: -7 is out of range"},
		"unknown check":            {func(s *service.Service) { s.Health.Kind = "icmp" }, `health.kind: unknown health check "icmp"; want tcp, http or none`},
		"interval too short":       {func(s *service.Service) { s.Health.Interval = 1; s.Health.Timeout = 1 }, "health.interval: 1ns is out of range; want 10ms to 1h0m0s"},
		"interval too long":        {func(s *service.Service) { s.Health.Interval = 2 * time.Hour }, "health.interval: 2h0m0s is out of range"},
		"no timeout":               {func(s *service.Service) { s.Health.Timeout = 0 }, "health.timeout: 0s is out of range"},
		"timeout over interval":    {func(s *service.Service) { s.Health.Timeout = 3 * time.Second }, "health.timeout: 3s is longer than the interval of 1s"},
		"timeout is interval":      {func(s *service.Service) { s.Health.Timeout = time.Second }, ""},
		"rise 0":                   {func(s *service.Service) { s.Health.Rise = 0 }, "health.rise: 0 is out of range; want 1 to 1000"},
		"fall -1":                  {func(s *service.Service) { s.Health.Fall = -1 }, "health.fall: -1 is out of range; want 1 to 1000"},
		"none needs nothing":       {func(s *service.Service) { s.Health = service.HealthCheck{Kind: service.CheckNone} }, ""},
		"relative path":            {func(s *service.Service) { s.Health.Kind = "http"; s.Health.Path = "ok" }, `health.path: "ok" is not a path`},
		"path with a space":        {func(s *service.Service) { s.Health.Kind = "http"; s.Health.Path = "/a b" }, `health.path: "/a b" is not a path`},
		"path with a line":         {func(s *service.Service) { s.Health.Kind = "http"; s.Health.Path = "/\r\nX: y" }, "health.path"},
		"host with a path":         {func(s *service.Service) { s.Health.Kind = "http"; s.Health.Host = "a/b" }, `health.host: "a/b" is not a host name`},
		"http in full":             {func(s *service.Service) { s.Health.Kind = "http"; s.Health.Path = "/ok?x=1"; s.Health.Host = "a.b:80" }, ""},
		"prefix with host bits":    {func(s *service.Service) { s.Prefixes[0] = netip.MustParsePrefix("10.1.1.1/24") }, "prefixes[0]: 10.1.1.1/24 has bits beyond its length; did you mean 10.1.1.0/24?"},
		"prefix of nothing":        {func(s *service.Service) { s.Prefixes[0] = netip.MustParsePrefix("10.1.2.0/24") }, "prefixes[0]: 10.1.2.0/24 contains no VIP"},
		"prefix of everything":     {func(s *service.Service) { s.Prefixes[0] = netip.MustParsePrefix("0.0.0.0/0") }, "prefixes[0]: 0.0.0.0/0 is everything"},
		"prefix zero":              {func(s *service.Service) { s.Prefixes[0] = netip.Prefix{} }, "prefixes[0]: is not a prefix"},
		"prefix twice":             {func(s *service.Service) { s.Prefixes = append(s.Prefixes, s.Prefixes[0]) }, "prefixes[1]: 10.1.1.0/24 is given twice"},
		"vip invalid":              {vip(""), "frontends[0].vip: is not an IP address"},
		"vip unspecified":          {vip("0.0.0.0"), "frontends[0].vip: 0.0.0.0 is not a unicast address"},
		"vip loopback":             {vip("127.0.0.1"), "frontends[0].vip: 127.0.0.1 is not a unicast address"},
		"vip multicast":            {vip("224.0.0.5"), "frontends[0].vip: 224.0.0.5 is not a unicast address"},
		"vip broadcast":            {vip("255.255.255.255"), "frontends[0].vip: 255.255.255.255 is not a unicast address"},
		"frontend port":            {func(s *service.Service) { s.Frontends[0].Port = 0 }, "frontends[0].port: 0 is out of range; want 1 to 65535"},
		"frontend protocol":        {func(s *service.Service) { s.Frontends[0].Protocol = 132 }, "frontends[0].protocol: SCTP is not served"},
		"frontends out of order":   {func(s *service.Service) { s.Frontends[1], s.Frontends[0] = s.Frontends[0], s.Frontends[1] }, "frontends[1]: TCP 10.1.1.1:80 is out of order or given twice"},
		"frontend without backend": {func(s *service.Service) { s.Frontends[0].Backends = nil }, ""},
		"backend port":             {func(s *service.Service) { s.Frontends[0].Backends = backends("172.16.1.2:0") }, "frontends[0].backends[0].port: 0 is out of range"},
		"backend twice":            {func(s *service.Service) { s.Frontends[0].Backends = backends("172.16.1.2:1", "172.16.1.2:1") }, "frontends[0].backends[1]: 172.16.1.2:1 is out of order or given twice"},
		"backend mapped":           {func(s *service.Service) { s.Frontends[0].Backends = backends("[::ffff:1.2.3.4]:80") }, "frontends[0].backends[0].addr: ::ffff:1.2.3.4 is an IPv4 address in IPv6 clothes; write 1.2.3.4"},
		"backend with a zone":      {func(s *service.Service) { s.Frontends[1].Backends = backends("[fe80::1%eth0]:80") }, "frontends[1].backends[0].addr: fe80::1%eth0 has a zone"},
		"backend link-local":       {func(s *service.Service) { s.Frontends[1].Backends = backends("[fe80::1]:80") }, "frontends[1].backends[0].addr: fe80::1 is not a unicast address"},
		"backend is the vip":       {func(s *service.Service) { s.Frontends[0].Backends = backends("10.1.1.1:80") }, "frontends[0].backends[0].addr: 10.1.1.1 is the VIP itself"},
		"weight too large":         {func(s *service.Service) { s.Frontends[0].Backends[0].Weight = 65536 }, "frontends[0].backends[0].weight: 65536 is out of range; want 0 to 65535"},
		"weight 0 drains":          {func(s *service.Service) { s.Frontends[0].Backends[0].Weight = 0 }, ""},
		"other family by tunnel":   {func(s *service.Service) { s.Frontends[0].Backends = backends("[2001:db8:1::2]:80") }, ""},
		"families mixed":           {func(s *service.Service) { s.Frontends[0].Backends = backends("172.16.1.2:80", "[2001:db8:1::2]:80") }, "frontends[0].backends[1].addr: 2001:db8:1::2 is of another family than its sibling 172.16.1.2"},
		"other family by nat": {func(s *service.Service) {
			s.Method = service.DirectNAT
			s.Frontends[1].Backends = backends("172.16.1.2:80")
		}, "frontends[1].backends[0].addr: 172.16.1.2 is of another family than the VIP 2001:db8::1, which only method tunnel can serve"},
	} {
		t.Run(name, func(t *testing.T) {
			s := valid()
			c.change(s)
			errs := s.Validate()
			switch {
			case c.want == "" && len(errs) > 0:
				t.Errorf("a valid Service is refused: %v", errs)
			case c.want != "" && (len(errs) != 1 || !strings.Contains(errs[0].Error(), c.want)):
				t.Errorf("got %v, want one error with %q", errs, c.want)
			}
		})
	}
}

// Every wrong field is told at once, not one after each mend.
func TestValidateTellsAll(t *testing.T) {
	errs := (&service.Service{Frontends: make([]service.Frontend, 1)}).Validate()
	if len(errs) != 9 {
		t.Errorf("got %d errors, want 9: %v", len(errs), errs)
	}
}
