package desired_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
)

func full() desired.Frontend {
	return desired.Frontend{
		Key:    service.Key{VIP: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: service.TCP},
		Method: service.Tunnel, Encapsulation: service.IPIP, Scheduler: service.Maglev, RingSize: 251, Survival: service.SecondChance,
		Affinity: time.Minute, Allow: make([]netip.Prefix, 1), Deny: make([]netip.Prefix, 1), Limits: service.Limits{Opens: 1},
		Backends: []service.Backend{{Addr: netip.MustParseAddrPort("172.16.0.1:80"), Weight: 1, Since: time.Unix(1, 0)}},
	}
}

// TestSame checks that every field programmed into a data plane makes a difference and
// that informational fields do not.
func TestSame(t *testing.T) {
	for name, change := range map[string]func(*desired.Frontend){
		"":              func(*desired.Frontend) {},
		"key":           func(f *desired.Frontend) { f.Last = 90 },
		"method":        func(f *desired.Frontend) { f.Method = service.NAT },
		"encapsulation": func(f *desired.Frontend) { f.Encapsulation = service.GUE },
		"scheduler":     func(f *desired.Frontend) { f.Scheduler = service.RoundRobin },
		"ring size":     func(f *desired.Frontend) { f.RingSize++ },
		"survival":      func(f *desired.Frontend) { f.Survival = service.HashOnly },
		"affinity":      func(f *desired.Frontend) { f.Affinity++ },
		"allow":         func(f *desired.Frontend) { f.Allow = nil },
		"deny":          func(f *desired.Frontend) { f.Deny = nil },
		"limits":        func(f *desired.Frontend) { f.Limits.ClientOpens++ },
		"address":       func(f *desired.Frontend) { f.Backends[0].Addr = netip.AddrPort{} },
		"weight":        func(f *desired.Frontend) { f.Backends[0].Weight++ },
		"max conns":     func(f *desired.Frontend) { f.Backends[0].MaxConns++ },
		"since":         func(f *desired.Frontend) { f.Backends[0].Since = time.Time{} },
		"backends":      func(f *desired.Frontend) { f.Backends = append(f.Backends, f.Backends...) },
	} {
		f := full()
		change(&f)
		if got := f.Same(full()); got != (name == "") {
			t.Errorf("another %q: same %v", name, got)
		}
	}
	f := full()
	b := &f.Backends[0]
	b.Name, b.Node, b.Since = "web-1", "node1", b.Since.UTC()
	if !f.Same(full()) {
		t.Error("a name makes a difference")
	}
}

func TestStateful(t *testing.T) {
	for name, c := range map[string]struct {
		change                 func(*desired.Frontend)
		stateful, secondChance bool
	}{
		"asked for":      {func(f *desired.Frontend) {}, false, true},
		"by default":     {func(f *desired.Frontend) { f.Survival = "" }, false, true},
		"none":           {func(f *desired.Frontend) { f.Survival = service.HashOnly }, false, false},
		"flow table":     {func(f *desired.Frontend) { f.Survival = service.FlowTable }, true, false},
		"nat":            {func(f *desired.Frontend) { f.Method = service.NAT }, true, false},
		"dr":             {func(f *desired.Frontend) { f.Method, f.Survival = service.DR, "" }, false, false},
		"dr, asked for":  {func(f *desired.Frontend) { f.Method = service.DR }, false, true},
		"sh":             {func(f *desired.Frontend) { f.Scheduler = service.SourceHash }, false, true},
		"p2c":            {func(f *desired.Frontend) { f.Scheduler = service.PowerOfTwo }, true, false},
		"affinity":       {func(f *desired.Frontend) { f.Affinity = time.Minute }, true, false},
		"one with limit": {func(f *desired.Frontend) { f.Backends[0].MaxConns = 1 }, true, false},
	} {
		f := full()
		f.Affinity = 0
		c.change(&f)
		if f.Stateful() != c.stateful || f.SecondChance() != c.secondChance {
			t.Errorf("%s: stateful %v, second chance %v", name, f.Stateful(), f.SecondChance())
		}
	}
}
