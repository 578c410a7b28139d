package balancer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/addresses"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/cookie"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/hashes"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/model"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/programmed"
)

// The state of SYN flood protection around the programs. Some frontends are always under
// pressure, as the agent programs them. Those with automatic protection are put under
// pressure here, as its watch would do.

// wallOffset is what the wall clock is ahead: within a slot.
const wallOffset = 1_700_000_000_123_456_789

// segmentSizes are reported to clients.
var segmentSizes = [2]uint16{1360, 1340}

var (
	firstKey  = cookie.Key{K0: 0x1111222233334444, K1: 0x5555666677778888}
	secondKey = cookie.Key{K0: 0x99aabbccddeeff00, K1: 0x0f1e2d3c4b5a6978}
)

// cookieKeys are the keys of cookies over time: each list is a state of a rotation.
var cookieKeys = [3]cookie.Keys{
	{firstKey}, {secondKey, firstKey}, {secondKey},
}

// flowProxied is FLOW_PROXIED.
const flowProxied = 0x80

// prepareProtection has the agent load the program for protected frontends, which it does
// when the first one needs it.
func (t *Target) prepareProtection() error {
	f := randomFrontend(rand.New(rand.NewPCG(0, 0)), false)
	f.Method, f.Encapsulation, f.Scheduler = service.NAT, "", service.Maglev
	f.Key = service.Key{VIP: addresses.Nth(addresses.Vips[0][0], 0), Port: 1, Protocol: service.TCP}
	f.SYNProtection = service.SYNAlways
	if err := t.plane.Upsert(withPorts(rand.New(rand.NewPCG(0, 0)), f)); err != nil {
		return err
	}
	return t.plane.Delete(f.Key)
}

// putKeys makes a list of keys the valid one.
func (t *Target) putKeys(state int) error {
	b := make([]byte, 0, 40)
	keys := cookieKeys[state]
	for i := range 2 {
		var k cookie.Key
		if i < len(keys) {
			k = keys[i]
		}
		b = binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(b, k.K0), k.K1)
	}
	b = binary.NativeEndian.AppendUint32(b, uint32(len(keys)))
	t.keys = state
	t.model.Rotate(keys)
	return t.object.Maps["syn_keys"].Put(uint32(0), append(b, 0, 0, 0, 0))
}

// protections selects the protection of frontends.
type protections struct {
	rng  *rand.Rand
	none bool
}

func (p *protections) next() service.SYNProtection {
	switch n := p.rng.IntN(8); {
	case p.none || n < 3:
		return service.SYNOff
	case n < 5:
		return service.SYNAlways
	}
	return service.SYNAuto
}

// enterPressure selects the ports and the pressure of a world.
func (t *Target) enterPressure(number uint64) *protections {
	rng := rand.New(rand.NewPCG(number, 0x5e11))
	all := uint16(xdp.DefaultPorts.Last-xdp.DefaultPorts.First) + 1
	t.ports = []uint16{all, all, 1, 2, 3, 5, 70}[rng.IntN(7)]
	t.pressures = map[service.Key]programmed.Pressure{}
	t.pressure0 = number
	t.noPressure = rng.IntN(4) == 0
	return &protections{rng: rng, none: t.noPressure}
}

// pressureOf returns a frontend's pressure.
func (t *Target) pressureOf(f *programmed.Frontend) programmed.Pressure {
	switch f.Protection() {
	case service.SYNAlways:
		return programmed.Pressure{Guarded: true, Checked: true}
	case service.SYNAuto:
		if p, changed := t.pressures[f.Frontend.Key]; changed {
			return p
		}
		k := f.Frontend.Key
		return randomPressure(rand.New(rand.NewPCG(t.pressure0, uint64(k.Port)<<16|uint64(k.Protocol)<<8|uint64(addresses.Family(k.VIP.Is6())))))
	}
	return programmed.Pressure{}
}

func randomPressure(rng *rand.Rand) programmed.Pressure {
	return []programmed.Pressure{{}, {Checked: true}, {Guarded: true, Checked: true}}[rng.IntN(3)]
}

// putSettings gives the programs the agent's settings, except those that depend on the
// host or the world.
func (t *Target) putSettings() error {
	b, err := t.live[".data.settings"].LookupBytes(uint32(0))
	if err != nil {
		return err
	}
	set, syn := t.object.Spec.Variables["set"].Offset, t.object.Spec.Variables["syn_set"].Offset
	binary.NativeEndian.PutUint16(b[int(set)+t.reader.Set.At("port_count"):], t.ports)
	field := func(name string) []byte { return b[int(syn)+t.reader.Syn.At(name):] }
	binary.NativeEndian.PutUint64(field("wall"), wallOffset)
	binary.NativeEndian.PutUint16(field("mss4"), segmentSizes[0])
	binary.NativeEndian.PutUint16(field("mss6"), segmentSizes[1])
	binary.NativeEndian.PutUint32(field("active"), 1)
	return t.object.Maps[".data.settings"].Put(uint32(0), b)
}

// putPressure writes the pressure of the frontends to their entries.
func (t *Target) putPressure() error {
	for _, f := range t.config.Frontends {
		p := t.pressureOf(f)
		if f.Protection() != service.SYNAuto && t.reader.PressureOf(f) != p {
			return fmt.Errorf("%s: the agent has programmed %+v, not %+v", f.Frontend.Key, t.reader.PressureOf(f), p)
		}
		if err := t.setPressure(f, p); err != nil {
			return err
		}
	}
	return nil
}

// setPressure changes the pressure of a frontend, and nothing else in its entry.
func (t *Target) setPressure(f *programmed.Frontend, p programmed.Pressure) error {
	r := t.reader
	f.Pressure = p
	if r.PressureOf(f) == p {
		return nil
	}
	at := r.Frontend.At("flags")
	flags := programmed.U32(f.Entry, at) &^ (r.IsGuarded | r.IsChecked)
	if p.Guarded {
		flags |= r.IsGuarded
	}
	if p.Checked {
		flags |= r.IsChecked
	}
	binary.NativeEndian.PutUint32(f.Entry[at:], flags)
	now := slices.Clone(f.Entry)
	binary.NativeEndian.PutUint32(now[r.Frontend.At("turn"):], f.Turn)
	if f.InRange < 0 {
		return t.live["frontends"].Put(f.Key, now)
	}
	b, err := t.live["port_ranges"].LookupBytes(uint32(f.InRange))
	if err != nil {
		return err
	}
	copy(b[r.PortRange.At("f"):], now)
	return t.live["port_ranges"].Put(uint32(f.InRange), b)
}

// releasePressure makes the entries what the agent has programmed, for its next change.
func (t *Target) releasePressure() error {
	for _, f := range t.config.Frontends {
		if f.Protection() == service.SYNAuto {
			if err := t.setPressure(f, programmed.Pressure{}); err != nil {
				return err
			}
		}
	}
	return nil
}

// changePressure changes the pressure of a frontend, or the keys.
func (t *Target) changePressure(number uint64) error {
	rng := rand.New(rand.NewPCG(number, 11))
	if rng.IntN(3) == 0 {
		return t.putKeys((t.keys + 1) % len(cookieKeys))
	}
	f := t.config.Frontends[int(number&0xffff)%len(t.config.Frontends)]
	if f.Protection() != service.SYNAuto {
		return nil
	}
	t.pressures[f.Frontend.Key] = randomPressure(rng)
	return t.setPressure(f, t.pressureOf(f))
}

// resetPressure undoes the changes of a case.
func (t *Target) resetPressure() error {
	if len(t.pressures) > 0 {
		clear(t.pressures)
		if err := t.putPressure(); err != nil {
			return err
		}
	}
	if t.keys != 0 {
		return t.putKeys(0)
	}
	return nil
}

// resetProtection brings it to the state at the beginning of a case.
func (t *Target) resetProtection() error {
	m := t.model
	for a := range m.Sources {
		set, _ := hashes.SourceTag(&a)
		clear(t.memory.sources[64*set : 64*set+64])
	}
	for id := range m.Events {
		clear(t.memory.events[8*model.SynEvents*id : 8*model.SynEvents*(id+1)])
	}
	clear(lastWords(t.memory.natScratch[:len(t.memory.natScratch)-64])) // attempts that failed
	clear(t.halved())
	clear(lastWords(t.memory.slowScratch)) // rejected first fragments
	return t.resetPressure()
}

// lastWords are the last 64 words of a memory.
func lastWords(memory []byte) []byte { return memory[len(memory)-8*64:] }

// halved is where the programs store it: at the end of their scratch memory.
func (t *Target) halved() []byte { return t.memory.natScratch[len(t.memory.natScratch)-64:] }

// compareProtection compares sources, events and searches for ports.
func (t *Target) compareProtection() error {
	m := t.model
	for a, want := range m.Sources {
		set, tag := hashes.SourceTag(&a)
		if err := compareSource(t.memory.sources[64*set:64*set+64], tag, want); err != nil {
			return packetfuzz.Violated("source %v: %v", a, err)
		}
	}
	for id, want := range m.Events {
		for i, n := range want {
			if is := binary.NativeEndian.Uint64(t.memory.events[8*(model.SynEvents*int(id)+i):]); is != n {
				return packetfuzz.Violated("event %d of frontend %d is counted %d times, not %d", i, id, is, n)
			}
		}
	}
	for i, n := range t.halved() {
		if n != m.Halved[i] {
			return packetfuzz.Violated("searches for ports to backends %d are halved %d times, not %d", i, n, m.Halved[i])
		}
	}
	if is := t.object.Control.Random; is != m.Random {
		return packetfuzz.Violated("the random number is %#x, not %#x", is, m.Random)
	}
	return nil
}

// compareSource compares a source with its set of eight.
func compareSource(set []byte, tag uint32, want *model.Source) error {
	for at := 0; at < len(set); at += 8 {
		if programmed.U32(set, at) != tag {
			continue
		}
		expires, syns := binary.NativeEndian.Uint16(set[at+4:]), binary.NativeEndian.Uint16(set[at+6:])
		if expires != uint16(want.Expires) || syns != want.Syns {
			return fmt.Errorf("%d SYNs are left until %d, not %+v", syns, expires, *want)
		}
		return nil
	}
	return errors.New("it is not known")
}

// compareProxied compares the translation of a flow.
func (t *Target) compareProxied(f *model.Flow) error {
	p := f.Proxied
	if p == nil {
		return nil
	}
	b, err := t.object.Maps["syn_flows"].LookupBytes(uint32(f.Way))
	if err != nil {
		return err
	}
	if b == nil {
		return packetfuzz.Violated("%+v has no translation", f.Tuple)
	}
	l := &t.memory.synLayout
	is := [...]uint32{
		programmed.U32(b, l.At("cookie")), programmed.U32(b, l.At("seq")), programmed.U32(b, l.At("shift")), programmed.U32(b, l.At("ts_shift")), programmed.U32(b, l.At("ts_value")), programmed.U32(b, l.At("ts_echo")),
		uint32(binary.NativeEndian.Uint16(b[l.At("mss"):])), uint32(b[l.At("scales")]),
	}
	want := [...]uint32{p.Cookie, p.Seq, p.Shift, p.TsShift, p.TsValue, p.TsEcho, uint32(p.Options.MSS), uint32(p.Scales)}
	if tag := binary.NativeEndian.Uint64(b[l.At("tag"):]); is != want || tag != f.Tag {
		return packetfuzz.Violated("the translation of %+v is %d, not %d; its tag is %#x, not %#x", f.Tuple, is, want, tag, f.Tag)
	}
	return nil
}
