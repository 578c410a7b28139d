package service_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/service"
)

func valid() *service.Service {
	return &service.Service{
		ID:            service.ID{Namespace: "default", Name: "web"},
		Method:        service.DefaultMethod,
		Scheduler:     service.DefaultScheduler,
		RingSize:      service.DefaultRingSize,
		Encapsulation: service.IPIP, Survival: service.SecondChance,
		Health:   service.DefaultHealthCheck,
		Panic:    true,
		Prefixes: []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24")},
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
		want   string // "" if valid, otherwise a part of the only error
	}{
		"as it is":                 {func(s *service.Service) {}, ""},
		"no namespace":             {func(s *service.Service) { s.ID.Namespace = "" }, "id.namespace: is empty"},
		"no name":                  {func(s *service.Service) { s.ID.Name = "" }, "id.name: is empty"},
		"unknown forwarding mode":  {func(s *service.Service) { s.Method = "tunel" }, `method: unknown forwarding mode "tunel"; want nat, fullnat, dsr-nat, dr or tunnel`},
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
		"drain -1s":                {func(s *service.Service) { s.Health.Drain = -time.Second }, "health.drain: -1s is out of range; want 0s to 24h0m0s"},
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
		"frontend protocol":        {func(s *service.Service) { s.Frontends[0].Protocol = 47 }, "frontends[0].protocol: protocol(47) is not served; want TCP, UDP or SCTP"},
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
			s.Method, s.Encapsulation = service.DSRNAT, ""
			s.Frontends[1].Backends = backends("172.16.1.2:80")
		}, "frontends[1].backends[0].addr: 172.16.1.2 is of another family than the VIP 2001:db8::1, which only forwarding mode tunnel supports"},
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

func TestValidateOptions(t *testing.T) {
	prefix := netip.MustParsePrefix
	first := func(change func(*service.Frontend)) func(*service.Service) {
		return func(s *service.Service) { s.Prefixes = nil; change(&s.Frontends[0]) }
	}
	as := func(m service.Method) func(*service.Service) {
		return func(s *service.Service) { s.Method, s.Encapsulation = m, ""; s.Survival = s.DefaultSurvival() }
	}
	ranged := func(from, to uint16, p service.Protocol, servers ...string) func(*service.Service) {
		return first(func(f *service.Frontend) {
			f.Port, f.Last, f.Protocol, f.Backends = from, to, p, backends(servers...)
		})
	}
	for name, c := range map[string]struct {
		change []func(*service.Service)
		want   string
	}{
		"gue":                    {[]func(*service.Service){func(s *service.Service) { s.Encapsulation = service.GUE }}, ""},
		"unknown encapsulation":  {[]func(*service.Service){func(s *service.Service) { s.Encapsulation = "vxlan" }}, `encapsulation: unknown encapsulation "vxlan"; want ipip or gue`},
		"encapsulation of a nat": {[]func(*service.Service){as(service.NAT), func(s *service.Service) { s.Encapsulation = service.GUE }}, "encapsulation: does not apply to forwarding mode nat; omit it, or use tunnel"},
		"nat":                    {[]func(*service.Service){as(service.NAT)}, ""},
		"fullnat":                {[]func(*service.Service){as(service.FullNAT)}, ""},
		"dr":                     {[]func(*service.Service){as(service.DR)}, ""},
		"unknown survival":       {[]func(*service.Service){func(s *service.Service) { s.Survival = "luck" }}, `survival: unknown connection consistency "luck"; want second-chance, flow-table or hash-only`},
		"no survival":            {[]func(*service.Service){func(s *service.Service) { s.Survival = service.HashOnly }}, ""},
		"fullnat forgets":        {[]func(*service.Service){as(service.FullNAT), func(s *service.Service) { s.Survival = service.HashOnly }}, "survival: hash-only is not possible with forwarding mode fullnat, for which flows must be remembered; want flow-table"},
		"lc by second chance":    {[]func(*service.Service){func(s *service.Service) { s.Scheduler = service.LeastConn }}, "survival: second-chance is not possible with scheduler lc, for which flows must be remembered; want flow-table"},
		"affinity":               {[]func(*service.Service){func(s *service.Service) { s.Affinity = time.Minute; s.Survival = s.DefaultSurvival() }}, ""},
		"affinity too long":      {[]func(*service.Service){func(s *service.Service) { s.Affinity, s.Survival = 25*time.Hour, service.FlowTable }}, "affinity: 25h0m0s is out of range; want whole seconds from 1s to 24h0m0s"},
		"affinity and dh": {[]func(*service.Service){func(s *service.Service) {
			s.Affinity, s.Survival, s.Scheduler = time.Hour, service.FlowTable, service.DestinationHash
		}}, "affinity: has no meaning with scheduler dh"},
		"max conns":            {[]func(*service.Service){func(s *service.Service) { s.Frontends[0].Backends[0].MaxConns = 5 }}, "survival: second-chance is not possible with a limit of connections"},
		"max conns remembered": {[]func(*service.Service){func(s *service.Service) { s.Frontends[0].Backends[0].MaxConns = 5; s.Survival = s.DefaultSurvival() }}, ""},

		"allow both families":  {[]func(*service.Service){func(s *service.Service) { s.Allow = []netip.Prefix{prefix("10.0.0.0/8"), prefix("::/0")} }}, ""},
		"allow one family":     {[]func(*service.Service){func(s *service.Service) { s.Allow = []netip.Prefix{prefix("10.0.0.0/8")} }}, "allow: has no prefix of the VIP 2001:db8::1's family, so that it would serve nobody; add one, or ::/0 for everybody"},
		"allow with host bits": {[]func(*service.Service){func(s *service.Service) { s.Allow = []netip.Prefix{prefix("10.0.0.1/8"), prefix("::/0")} }}, "allow[0]: 10.0.0.1/8 has bits beyond its length; did you mean 10.0.0.0/8?"},
		"allow twice": {[]func(*service.Service){func(s *service.Service) {
			s.Allow = []netip.Prefix{prefix("0.0.0.0/0"), prefix("::/0"), prefix("::/0")}
		}}, "allow[2]: ::/0 is given twice"},
		"deny of another family": {[]func(*service.Service){func(s *service.Service) {
			s.Frontends = s.Frontends[:1]
			s.Deny = []netip.Prefix{prefix("2001:db8::/32")}
		}}, "deny[0]: 2001:db8::/32 is of another family than every VIP"},
		"deny nothing":            {[]func(*service.Service){func(s *service.Service) { s.Deny = make([]netip.Prefix, 1) }}, "deny[0]: invalid Prefix is not a prefix"},
		"deny":                    {[]func(*service.Service){func(s *service.Service) { s.Deny = []netip.Prefix{prefix("10.0.0.0/8")} }}, ""},
		"sctp":                    {[]func(*service.Service){first(func(f *service.Frontend) { f.Protocol = service.SCTP })}, ""},
		"sctp to another port":    {[]func(*service.Service){first(func(f *service.Frontend) { f.Protocol, f.Port = service.SCTP, 81 })}, "backends[0].port: 80 is another port than the frontend's, and SCTP's checksum is over both; want 81"},
		"dr to another port":      {[]func(*service.Service){as(service.DR), first(func(f *service.Frontend) { f.Port = 81; f.Backends = f.Backends[:1] })}, "frontends[0].backends[0].port: 80 is another port than the frontend's, and forwarding mode dr does not rewrite packets; want 81, or forwarding mode tunnel"},
		"range":                   {[]func(*service.Service){ranged(8000, 8999, service.UDP, "172.16.1.2:0")}, ""},
		"whole address":           {[]func(*service.Service){ranged(0, 65535, service.AnyProtocol, "172.16.1.2:0")}, ""},
		"whole of one protocol":   {[]func(*service.Service){ranged(0, 65535, service.TCP)}, "frontends[0].port: 0 is out of range"},
		"any protocol":            {[]func(*service.Service){ranged(80, 0, service.AnyProtocol)}, "frontends[0].protocol: any is not served; want TCP, UDP or SCTP, or the whole address"},
		"range of servers' ports": {[]func(*service.Service){ranged(8000, 8999, service.UDP, "172.16.1.2:53")}, "frontends[0].backends[0].port: 53 stands for every port of UDP 10.1.1.1:8000-8999; want 0"},
		"range backwards":         {[]func(*service.Service){ranged(8999, 8000, service.TCP)}, "frontends[0].last: 8999-8000 is not a range of ports"},
		"ranges overlap": {[]func(*service.Service){ranged(8000, 8999, service.TCP), func(s *service.Service) {
			s.Frontends[1].Key = service.Key{VIP: s.Frontends[0].VIP, Port: 8500, Last: 9000, Protocol: service.TCP}
			s.Frontends[1].Backends, s.Health.Kind = nil, service.CheckNone
		}}, "frontends[1].port: TCP 10.1.1.1:8500-9000 overlaps TCP 10.1.1.1:8000-8999"},
		"nothing to check": {[]func(*service.Service){ranged(8000, 8999, service.TCP), func(s *service.Service) { s.Frontends = s.Frontends[:1] }}, "health.port: a range of ports has none of its own to check; name one, or let the check be none"},
	} {
		t.Run(name, func(t *testing.T) {
			s := valid()
			for _, change := range c.change {
				change(s)
			}
			errs := s.Validate()
			switch {
			case c.want == "" && len(errs) > 0:
				t.Errorf("a valid Service is refused: %v", errs)
			case c.want != "" && (len(errs) == 0 || !strings.Contains(errs[0].Error(), c.want)):
				t.Errorf("got %v, want first one with %q", errs, c.want)
			}
		})
	}
}

func TestKeys(t *testing.T) {
	for want, k := range map[string]service.Key{
		"TCP 10.1.1.1:80":              {VIP: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: service.TCP},
		"UDP 10.1.1.1:8000-8999":       {VIP: netip.MustParseAddr("10.1.1.1"), Port: 8000, Last: 8999, Protocol: service.UDP},
		"SCTP [2001:db8::1]:8000-8999": {VIP: netip.MustParseAddr("2001:db8::1"), Port: 8000, Last: 8999, Protocol: service.SCTP},
		"any 10.1.1.1:*":               {VIP: netip.MustParseAddr("10.1.1.1"), Last: 65535},
		"any [2001:db8::1]:*":          {VIP: netip.MustParseAddr("2001:db8::1"), Last: 65535},
	} {
		if got := k.String(); got != want || k.Whole() != strings.HasSuffix(want, "*") {
			t.Errorf("%q, whole %v; want %q", got, k.Whole(), want)
		}
	}
}

// TestValidateReportsAll checks that every invalid field is reported in one pass.
func TestValidateReportsAll(t *testing.T) {
	errs := (&service.Service{Frontends: make([]service.Frontend, 1)}).Validate()
	if len(errs) != 10 {
		t.Errorf("got %d errors, want 10: %v", len(errs), errs)
	}
}
