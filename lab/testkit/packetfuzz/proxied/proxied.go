// Package proxied is shared by the targets that fuzz the service proxy: frontends,
// programmed by the real agent, and how models look them up.
package proxied

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/fairlead/fairlead/core/proxy"
	plane "github.com/fairlead/fairlead/dataplane/proxy"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// Key is what a client addresses.
type Key struct {
	wire.Endpoint
	Proto byte
}

// KeyOf returns a frontend's key.
func KeyOf(k proxy.Key) Key {
	return Key{wire.Endpoint{Addr: k.Addr.As16(), Port: k.Port}, byte(k.Protocol)}
}

// AnyOf stands for all of the node's addresses in a family.
func AnyOf(v4 bool) wire.Addr {
	if v4 {
		return wire.Addr{10: 0xff, 11: 0xff}
	}
	return wire.Addr{}
}

// EndpointOf returns the address and port of a target.
func EndpointOf(t proxy.Target) wire.Endpoint {
	return wire.Endpoint{Addr: t.Addr.Addr().As16(), Port: t.Addr.Port()}
}

// Find returns the target at an endpoint, or nil.
func Find(all []proxy.Target, e wire.Endpoint) *proxy.Target {
	i := slices.IndexFunc(all, func(t proxy.Target) bool { return EndpointOf(t) == e })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// Frontends are the frontends that an agent has programmed.
type Frontends struct {
	ByKey map[Key]*proxy.Frontend
	IDs   map[Key]uint32
}

// Hold makes an agent program exactly these frontends; for equal keys the last one
// counts. services is the agent's map of them.
func (f *Frontends) Hold(p *plane.DataPlane, all []proxy.Frontend, services *ebpf.Map, types *btf.Spec) error {
	want := map[Key]*proxy.Frontend{}
	for i := range all {
		want[KeyOf(all[i].Key)] = &all[i]
	}
	var set []proxy.Frontend
	for _, f := range want {
		set = append(set, *f)
	}
	slices.SortFunc(set, func(a, b proxy.Frontend) int { return a.Compare(b.Key) })
	var gone []proxy.Key
	for k, held := range f.ByKey {
		if want[k] == nil {
			gone = append(gone, held.Key)
		}
	}
	if err := p.Apply(set, gone); err != nil {
		return err
	}
	f.ByKey = map[Key]*proxy.Frontend{}
	for i := range set {
		f.ByKey[KeyOf(set[i].Key)] = &set[i]
	}
	return f.readIDs(services, types)
}

func (f *Frontends) readIDs(services *ebpf.Map, types *btf.Spec) error {
	key, err := packetfuzz.LayoutOf(types, "service_key")
	if err != nil {
		return err
	}
	value, err := packetfuzz.LayoutOf(types, "service")
	if err != nil {
		return err
	}
	f.IDs = map[Key]uint32{}
	var k, v []byte
	for it := services.Iterate(); it.Next(&k, &v); {
		e := wire.Endpoint{Addr: wire.Addr(k[key.At("addr"):][:16]), Port: binary.BigEndian.Uint16(k[key.At("port"):])}
		f.IDs[Key{e, k[key.At("proto")]}] = binary.NativeEndian.Uint32(v[value.At("id"):])
	}
	if len(f.IDs) != len(f.ByKey) {
		return fmt.Errorf("the agent has %d frontends, want %d", len(f.IDs), len(f.ByKey))
	}
	return nil
}

// Change changes the i-th frontend at random. choice creates endpoints, and fresh another
// frontend.
func Change(rng *rand.Rand, all []proxy.Frontend, i int, choice func(f *proxy.Frontend) proxy.Choice, fresh func() proxy.Frontend) []proxy.Frontend {
	i %= len(all)
	f := &all[i]
	switch rng.IntN(4) {
	case 0:
		if len(all) > 1 {
			return append(all[:i], all[i+1:]...)
		}
	case 1: // an endpoint drains
		if n := len(f.Inside.Targets); n > 0 {
			gone := f.Inside.Targets[rng.IntN(n)]
			f.Outside.Targets, f.Inside.Targets = without(f.Outside.Targets, gone), without(f.Inside.Targets, gone)
			if rng.IntN(2) == 0 {
				f.Outside.Keeps, f.Inside.Keeps = with(f.Outside.Keeps, gone), with(f.Inside.Keeps, gone)
			}
		}
	case 2:
		f.Inside, f.Outside = choice(f), choice(f)
	case 3:
		return append(all, fresh())
	}
	return all
}

func without(all []proxy.Target, gone proxy.Target) (rest []proxy.Target) {
	for _, t := range all {
		if t.Addr != gone.Addr {
			rest = append(rest, t)
		}
	}
	return rest
}

func with(all []proxy.Target, one proxy.Target) []proxy.Target {
	all = append(without(all, one), one)
	Sort(all)
	return all
}

// Sort sorts endpoints in the order that agents require.
func Sort(all []proxy.Target) {
	slices.SortFunc(all, func(a, b proxy.Target) int { return a.Addr.Compare(b.Addr) })
}
