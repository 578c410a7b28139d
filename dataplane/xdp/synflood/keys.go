package synflood

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/dataplane/internal/clock"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/device"
)

// CookieKey is a key of cookies, which load balancers may share.
type CookieKey [16]byte

// SetKeys sets the keys of cookies: the first makes them, all are accepted. Load
// balancers with the same keys accept each other's. Without any this one generates its
// own key, which outlives the process.
func SetKeys(m *ebpf.Map, keys ...CookieKey) error {
	var v bpf.BalancerSynKeys
	if len(keys) > len(v.Key) {
		return fmt.Errorf("xdp: %d keys of cookies: at most %d fit", len(keys), len(v.Key))
	}
	if len(keys) == 0 {
		var own CookieKey
		rand.Read(own[:]) // it never fails
		keys = []CookieKey{own}
	}
	for i, k := range keys {
		v.Key[i].K0, v.Key[i].K1 = binary.LittleEndian.Uint64(k[:8]), binary.LittleEndian.Uint64(k[8:])
	}
	v.N = uint32(len(keys))
	if err := m.Put(uint32(0), v); err != nil {
		return fmt.Errorf("xdp: write the keys of cookies: %w", err)
	}
	return nil
}

// makeKeys ensures that there are keys.
func makeKeys(m *ebpf.Map) error {
	var v bpf.BalancerSynKeys
	if err := m.Lookup(uint32(0), &v); err != nil {
		return fmt.Errorf("xdp: read the keys of cookies: %w", err)
	}
	if v.N > 0 {
		return nil
	}
	return SetKeys(m)
}

// Prepare ensures that the program that protects frontends has keys and current settings.
func Prepare(maps *bpf.BalancerMaps, variables *bpf.BalancerVariables, interfaces []string) error {
	return errors.Join(makeKeys(maps.SynKeys), putSettings(variables.SynSet, interfaces))
}

// wallTolerance is the permitted error of the cookies' clock: small compared with the 34
// seconds of a slot.
const wallTolerance = 100 * time.Millisecond

// putSettings sets the offset of the wall clock from the programs' clock, and the
// segment sizes.
func putSettings(variable *ebpf.Variable, interfaces []string) error {
	var v bpf.BalancerSynSettings
	if err := variable.Get(&v); err != nil {
		return fmt.Errorf("xdp: read settings: %w", err)
	}
	next := settings(v, interfaces)
	if next == v {
		return nil
	}
	if err := variable.Set(next); err != nil {
		return fmt.Errorf("xdp: write settings: %w", err)
	}
	return nil
}

// Preset sets them in an object that replaces one with protected frontends, so that no packet is
// processed with others.
func Preset(spec *ebpf.CollectionSpec, interfaces []string) error {
	if err := spec.Variables[bpf.BalancerVarSynSet].Set(settings(bpf.BalancerSynSettings{}, interfaces)); err != nil {
		return fmt.Errorf("xdp: settings: %w", err)
	}
	return nil
}

// settings returns v with current values.
func settings(v bpf.BalancerSynSettings, interfaces []string) bpf.BalancerSynSettings {
	v.Mss4, v.Mss6 = segments(interfaces)
	v.Active = 1
	wall := time.Duration(time.Now().UnixNano()) - clock.Now()
	if off := wall - time.Duration(v.Wall); off > wallTolerance || off < -wallTolerance {
		v.Wall = uint64(wall)
	}
	return v
}

// segments returns the segment sizes that fit all interfaces.
func segments(interfaces []string) (v4, v6 uint16) {
	const headers4, headers6 = 40, 60
	mtu := device.MTU(interfaces)
	return uint16(mtu - headers4), uint16(mtu - headers6)
}
