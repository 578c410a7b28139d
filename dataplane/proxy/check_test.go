package proxy

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
)

// TestCheckFindsDamage changes each kind of entry behind the agent's back.
func TestCheckFindsDamage(t *testing.T) {
	first, second := frontend(key("10.96.0.1:80", service.TCP), netip.MustParseAddrPort("10.0.0.1:80")),
		frontend(key("10.96.0.2:80", service.UDP), netip.MustParseAddrPort("10.0.0.2:80"), netip.MustParseAddrPort("10.0.0.3:80"))
	first.Allow = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	node := toAddr(netip.MustParseAddr("192.0.2.1"))
	alien := toKey(key("10.96.1.1:80", service.TCP))
	for name, c := range map[string]struct {
		damage func(d *DataPlane) error
		want   string
	}{
		"a frontend that is missing": {func(d *DataPlane) error { return d.kernel.Services.Delete(toKey(first.Key)) }, "1 frontends were removed"},
		"one more frontend": {func(d *DataPlane) error {
			v := d.programmed[toKey(first.Key)]
			v.Check = checkOf(alien, v)
			return d.kernel.Services.Put(alien, v)
		}, "frontend 10.96.1.1:80/TCP was added"},
		"a frontend with another endpoint": {func(d *DataPlane) error {
			k := toKey(second.Key)
			v := d.programmed[k]
			v.Inside = d.programmed[toKey(first.Key)].Inside
			v.Check = checkOf(k, v)
			return d.kernel.Services.Put(k, v)
		}, "frontend 10.96.0.2:80/UDP was changed"},
		"an endpoint": {func(d *DataPlane) error {
			d.runs.at(d.programmed[toKey(second.Key)].Inside)[1].Port++
			return nil
		}, "endpoints of frontend 10.96.0.2:80/UDP were changed"},
		"a source range that is missing": {func(d *DataPlane) error {
			return d.kernel.SourceRanges.Delete(toRangeKey(d.programmed[toKey(first.Key)].Id, first.Allow[0]))
		}, "source ranges"},
		"one more source range": {func(d *DataPlane) error {
			return d.kernel.SourceRanges.Put(toRangeKey(d.programmed[toKey(first.Key)].Id, netip.MustParsePrefix("198.51.100.0/24")), uint8(1))
		}, "source ranges"},
		"a node address that is missing": {func(d *DataPlane) error { return d.kernel.NodeAddresses.Delete(node) }, "1 node addresses were removed"},
		"one more node address": {func(d *DataPlane) error {
			return d.kernel.NodeAddresses.Put(toAddr(netip.MustParseAddr("192.0.2.2")), uint8(1))
		}, "node address 192.0.2.2 was added"},
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t, config(t))
			d.Keys()
			apply(t, d, first, second)
			if err := errors.Join(d.SetNodeAddresses([]netip.Addr{fromAddr(node)}), d.Check(t.Context())); err != nil {
				t.Fatal(err)
			}
			if err := c.damage(d); err != nil {
				t.Fatal(err)
			}
			if err := d.Check(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v, want %q", err, c.want)
			}
			all := model{first.Key: first, second.Key: second}
			gone := slices.DeleteFunc(d.Keys(), func(k proxy.Key) bool { _, wanted := all[k]; return wanted })
			err := errors.Join(d.Apply(slices.Collect(maps.Values(all)), gone), d.SetNodeAddresses([]netip.Addr{fromAddr(node)}), d.Check(t.Context()))
			if err != nil {
				t.Error("after everything was applied again:", err)
			}
			all.check(t, d)
		})
	}
}

// TestCheckAfterAFailure finds nothing to be intact until everything was applied again: what
// another process had changed before the kernel was read counts as programmed.
func TestCheckAfterAFailure(t *testing.T) {
	d := open(t, config(t))
	if err := d.Check(t.Context()); !errors.Is(err, errReread) {
		t.Errorf("before anything was applied: %v", err)
	}
	d.Keys()
	f := frontend(key("10.96.0.1:80", service.TCP), netip.MustParseAddrPort("10.0.0.1:80"))
	apply(t, d, f)
	if err := d.kernel.Services.Delete(toKey(f.Key)); err != nil {
		t.Fatal(err)
	}
	d.stale = true
	apply(t, d)
	if err := d.Check(t.Context()); !errors.Is(err, errReread) {
		t.Errorf("after a failure: %v", err)
	}
	d.Keys()
	apply(t, d, f)
	if err := d.Check(t.Context()); err != nil {
		t.Errorf("after everything was applied again: %v", err)
	}
}

// TestCheckDuringChanges compares all the time while frontends are added, changed and
// removed.
func TestCheckDuringChanges(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	c := config(t)
	c.MaxFrontends, c.MaxTargets = 8*checkLot, 32*checkLot
	d := open(t, c)
	d.Keys()
	var some []proxy.Frontend // a comparison takes several lots
	for i := range 3 * checkLot {
		k := key(fmt.Sprintf("10.97.%d.%d:80", i/250, i%250+1), service.TCP)
		some = append(some, frontend(k, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i / 250), byte(i % 250)}), 80)))
	}
	apply(t, d, some...)
	var changes sync.WaitGroup
	stop, checks := make(chan struct{}), 0
	changes.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			f := randomFrontend(r, randomKey(r))
			if n%3 == 0 {
				f = some[r.IntN(len(some))]
			}
			var err error
			if n%2 == 0 {
				err = d.Apply(nil, []proxy.Key{f.Key})
			} else {
				err = d.Apply([]proxy.Frontend{f}, nil)
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	for until := time.Now().Add(time.Second); time.Now().Before(until) || checks < 3; checks++ {
		if err := d.Check(t.Context()); err != nil {
			t.Errorf("comparison %d: %v", checks, err)
			break
		}
	}
	close(stop)
	changes.Wait()
	if err := d.Check(t.Context()); err != nil {
		t.Error("afterwards:", err)
	}
}
