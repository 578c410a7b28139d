package xdp

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/program"
)

// Every frontend that a Service can request is either programmed, and listed exactly as
// requested, or rejected by name.
func TestAllThatMayBeAskedFor(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	programmed, refused := 0, 0
	for _, method := range service.Methods {
		for _, scheduler := range service.Schedulers {
			for _, survival := range append(service.Survivals, "") {
				for _, v6 := range []bool{false, true} {
					f := frontend(method, vips[v6], service.TCP, servers[v6])
					if method == service.DR {
						f.Backends[0].Addr = netip.AddrPortFrom(f.Backends[0].Addr.Addr(), f.Port)
					}
					f.Scheduler, f.Survival = scheduler, survival
					f.Backends[0].Since = time.Unix(1700000000, 5).UTC()
					err := d.Upsert(f)
					if errors.Is(err, dataplane.ErrUnsupported) {
						refused++
						continue
					}
					must(t, err)
					programmed++
					list, err := d.List()
					must(t, err)
					if at := len(list) - 1; !list[0].Same(f) && !list[at].Same(f) {
						t.Errorf("asked for %s, listed %s", show(f), show(list...))
					}
				}
			}
		}
	}
	t.Logf("%d programmed, %d refused", programmed, refused)
	if programmed == 0 {
		t.Error("no frontends are programmed")
	}
}

func TestRefusalsByName(t *testing.T) {
	n := newNet(t)
	c := config()
	c.SourceV6 = netip.Addr{}
	d := n.open(t, c)
	with := func(method service.Method, change func(*desired.Frontend)) desired.Frontend {
		f := frontend(method, vips[false], service.TCP, servers[false])
		change(&f)
		return f
	}
	for says, f := range map[string]desired.Frontend{
		`encapsulation "vxlan"`:         with(service.Tunnel, func(f *desired.Frontend) { f.Encapsulation = "vxlan" }),
		`connection consistency "luck"`: with(service.Tunnel, func(f *desired.Frontend) { f.Survival = "luck" }),
		"port 0":                        with(service.Tunnel, func(f *desired.Frontend) { f.Port = 0 }),
		"any protocol on some ports": with(service.Tunnel, func(f *desired.Frontend) {
			f.Protocol = service.AnyProtocol
		}),
		"last port is below": with(service.Tunnel, func(f *desired.Frontend) { f.Last = 7 }),
		"whole seconds":      with(service.Tunnel, func(f *desired.Frontend) { f.Affinity = time.Millisecond }),
		"dr to port 8080":    with(service.DR, func(*desired.Frontend) {}),
		"backends without a port": with(service.Tunnel, func(f *desired.Frontend) {
			f.Backends[0].Addr = netip.MustParseAddrPort("172.16.5.1:0")
		}),
		"only some backends have a port": with(service.Tunnel, func(f *desired.Frontend) {
			f.Backends = append(f.Backends, service.Backend{Addr: netip.MustParseAddrPort("172.16.5.9:0"), Weight: 1})
		}),
		"the first --interface has no IPv6 address": with(service.Tunnel, func(f *desired.Frontend) {
			f.Backends[0].Addr = netip.MustParseAddrPort(servers[true])
		}),
	} {
		if err := d.Upsert(f); !errors.Is(err, dataplane.ErrUnsupported) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: rejected with %v", says, err)
		}
	}
	if got := listed(t, d); got != "" {
		t.Errorf("holds %s", got)
	}
}

// The table of steps of a program lives as long as that is attached, and no
// longer.
func TestStepsFollowTheProgram(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	for range 2 {
		first := d.program.Table
		pins, err := d.pins.Names(program.StepsPrefix)
		must(t, err)
		if len(pins) != 1 || pins[0] != first {
			t.Errorf("pinned are %q, want %q", pins, first)
		}
		var slowPath uint32
		if err := d.kernel.Steps.Lookup(uint32(bpf.BalancerStepSTEP_SLOW_PATH), &slowPath); err != nil || slowPath == 0 {
			t.Errorf("no program for what is rare: %v", err)
		}
		d = n.reopen(t, d)
		if d.program.Table == first {
			t.Error("the new program has the old table")
		}
	}
}
