package balancer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/addresses"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// Enter implements packetfuzz.Target: it configures the agent with frontends of all
// kinds.
func (t *Target) Enter(number uint64) error {
	rng := rand.New(rand.NewPCG(number, 0xfa1e))
	if err := t.releasePressure(); err != nil {
		return err
	}
	for _, f := range t.asked {
		if err := t.plane.Delete(f.Key); err != nil {
			return err
		}
	}
	clear(t.changed)
	t.asked = t.asked[:0]
	t.choosePeers(rng)
	protections := t.enterPressure(number)
	if err := t.plane.SetBalancers(t.all, t.draining); err != nil {
		return err
	}
	for _, f := range randomFrontends(rng) {
		f.SYNProtection = protections.next()
		err := t.plane.Upsert(f)
		if errors.Is(err, dataplane.ErrUnsupported) {
			continue
		}
		if err != nil {
			return err
		}
		t.asked = append(t.asked, f)
	}
	for i := range t.asked { // a history: backends that were added, drain or are gone
		for range rng.IntN(3) {
			vary(rng, &t.asked[i])
			if err := t.plane.Upsert(t.asked[i]); err != nil {
				return fmt.Errorf("%+v: %w", t.asked[i], err)
			}
		}
	}
	t.world = cloneFrontends(t.asked)
	t.model.Routed()
	if err := t.readConfig(); err != nil {
		return err
	}
	t.generator.Enter(t.world)
	return nil
}

func cloneFrontends(all []desired.Frontend) []desired.Frontend {
	copied := slices.Clone(all)
	for i := range copied {
		copied[i].Backends = slices.Clone(copied[i].Backends)
	}
	return copied
}

func (t *Target) choosePeers(rng *rand.Rand) {
	t.all, t.draining = nil, nil
	for _, v6 := range []bool{false, true} {
		for i := range rng.IntN(6) {
			a := addresses.Nth(addresses.PeerNets[addresses.Family(v6)], i)
			t.all = append(t.all, a)
			if rng.IntN(3) == 0 {
				t.draining = append(t.draining, a)
			}
		}
	}
}

// readConfig reads the agent's state into the model.
func (t *Target) readConfig() error {
	c := &t.config
	if err := t.putSettings(); err != nil {
		return err
	}
	if err := t.reader.Read(c, t.asked); err != nil {
		return err
	}
	if err := t.putPressure(); err != nil {
		return err
	}
	c.Known, c.Draining = map[wire.Addr]bool{}, [2][]wire.Addr{}
	for _, a := range t.all {
		c.Known[a.As16()] = true
	}
	for _, a := range t.draining {
		if f := addresses.Family(a.Is6()); len(c.Draining[f]) < 4 {
			c.Draining[f] = append(c.Draining[f], a.As16())
		}
	}
	c.Asks = len(c.Draining[0])+len(c.Draining[1]) > 0
	return nil
}

func randomFrontends(rng *rand.Rand) (all []desired.Frontend) {
	for _, v6 := range []bool{false, true} {
		vip := netip.MustParseAddr(addresses.Vips[0][addresses.Family(v6)])
		for i := range 12 {
			f := randomFrontend(rng, v6)
			f.Key = service.Key{VIP: vip, Port: uint16(80 + i)}
			all = append(all, protocols(rng, f)...)
		}
		for i := range 3 {
			f := randomFrontend(rng, v6)
			f.Key = service.Key{VIP: netip.MustParseAddr(addresses.Vips[1][addresses.Family(v6)]), Port: uint16(1000 * (i + 1)), Last: uint16(1000*(i+1) + 499)}
			all = append(all, protocols(rng, keepTurns(f))...)
		}
		f := randomFrontend(rng, v6)
		f.Key = service.Key{VIP: netip.MustParseAddr(addresses.Vips[2][addresses.Family(v6)]), Last: 65535}
		all = append(all, withPorts(rng, keepTurns(f)))
		f = randomFrontend(rng, v6)
		f.Key = service.Key{VIP: netip.MustParseAddr(addresses.LocalVIPs[addresses.Family(v6)]), Port: 80}
		all = append(all, protocols(rng, f)...)
	}
	return all
}

// keepTurns gives ranges a scheduler that does not write to their entries.
func keepTurns(f desired.Frontend) desired.Frontend {
	if f.Scheduler == service.RoundRobin || f.Scheduler == service.WeightedRoundRobin {
		f.Scheduler = service.LeastConn
	}
	return f
}

// protocols returns a frontend for some of the protocols.
func protocols(rng *rand.Rand, f desired.Frontend) (all []desired.Frontend) {
	for _, p := range []service.Protocol{service.TCP, service.UDP, service.SCTP} {
		if rng.IntN(3) > 0 {
			f.Protocol = p
			g := f
			g.Backends = slices.Clone(f.Backends)
			all = append(all, withPorts(rng, g))
		}
	}
	return all
}

// withPorts gives the backends ports that the frontend allows.
func withPorts(rng *rand.Rand, f desired.Frontend) desired.Frontend {
	port := f.Port
	if rng.IntN(2) == 0 {
		port += 8000
	}
	switch {
	case f.Range() && (rng.IntN(2) == 0 || f.Method == service.DR):
		port = 0
	case f.Method == service.DR:
		port = f.Port
	}
	for i := range f.Backends {
		f.Backends[i].Addr = netip.AddrPortFrom(f.Backends[i].Addr.Addr(), port)
	}
	return f
}

func pick[T any](rng *rand.Rand, all []T) T { return all[rng.IntN(len(all))] }

// randomFrontend returns a frontend without a key, and with backends without ports.
func randomFrontend(rng *rand.Rand, v6 bool) desired.Frontend {
	f := desired.Frontend{
		Method: pick(rng, service.Methods), Scheduler: service.Maglev, RingSize: 61, Survival: pick(rng, service.Survivals),
	}
	if rng.IntN(3) == 0 {
		f.Scheduler = pick(rng, service.Schedulers)
	}
	if rng.IntN(4) == 0 {
		f.Survival = ""
	}
	server6 := v6
	if f.Method == service.Tunnel {
		f.Encapsulation = pick(rng, service.Encapsulations)
		server6 = v6 != (rng.IntN(3) == 0)
	}
	if rng.IntN(6) == 0 {
		f.Affinity = time.Duration(1+rng.IntN(600)) * time.Second
	}
	if rng.IntN(4) == 0 {
		guard(rng, &f)
	}
	for range 1 + rng.IntN(5) {
		addBackend(rng, &f, server6)
	}
	if rng.IntN(8) == 0 {
		for i := range f.Backends {
			f.Backends[i].Weight = 0
		}
	}
	return f
}

// guard gives a frontend source ranges or rate limits.
func guard(rng *rand.Rand, f *desired.Frontend) {
	some := func(texts ...string) (all []netip.Prefix) {
		for _, text := range texts {
			if rng.IntN(2) == 0 {
				all = append(all, netip.MustParsePrefix(text))
			}
		}
		return all
	}
	switch rng.IntN(3) {
	case 0:
		f.Allow = some("192.168.0.0/16", "2001:db8::/33", "192.168.0.1/32", "2001:db8::1/128", "::/1", "::/96")
	case 1:
		f.Deny = some("192.168.0.2/31", "2001:db8::2/127", "0.0.0.0/1", "8000::/1", "::/0", "::/80")
	}
	if rng.IntN(2) == 0 {
		limit := func() uint32 { return []uint32{0, 0, 1, 2, 3, 5, 9, 1000}[rng.IntN(8)] }
		f.Limits = service.Limits{ClientPackets: limit(), ClientOpens: limit(), Packets: limit(), Opens: limit()}
	}
}

// addBackend adds a backend, unless it exists.
func addBackend(rng *rand.Rand, f *desired.Frontend, v6 bool) {
	nets := addresses.ServerNets[addresses.Family(v6)]
	i := rng.IntN(len(nets))
	if rng.IntN(2) == 0 {
		i = rng.IntN(3)
	}
	if f.Method == service.DR && rng.IntN(3) > 0 {
		i = 0
	}
	b := service.Backend{Addr: netip.AddrPortFrom(addresses.Nth(nets[i], rng.IntN(8)), 0), Weight: 1 + rng.Uint32N(3)}
	if len(f.Backends) > 0 {
		b.Addr = netip.AddrPortFrom(b.Addr.Addr(), f.Backends[0].Addr.Port())
	}
	if slices.ContainsFunc(f.Backends, func(o service.Backend) bool { return o.Addr == b.Addr }) {
		return
	}
	if rng.IntN(8) == 0 {
		b.Weight = 0
	}
	if rng.IntN(3) == 0 {
		b.Since = time.Unix(int64(1e9+3600*rng.IntN(9)), 0).UTC()
	}
	if rng.IntN(12) == 0 {
		b.MaxConns = 1 + rng.Uint32N(3)
	}
	f.Backends = service.SortBackends(append(slices.Clone(f.Backends), b))
}

// vary changes a frontend in a way that happens while it serves.
func vary(rng *rand.Rand, f *desired.Frontend) {
	f.Backends = slices.Clone(f.Backends)
	i := rng.IntN(len(f.Backends))
	switch n := rng.IntN(6); {
	case n == 0:
		f.Backends[i].Weight = 0
	case n == 1:
		f.Backends[i].Weight = 1 + rng.Uint32N(4)
	case n == 2 && len(f.Backends) > 1:
		f.Backends = slices.Delete(f.Backends, i, i+1)
	case n == 3:
		changeMethod(rng, f)
	default:
		addBackend(rng, f, f.Backends[0].Addr.Addr().Is6())
	}
}

// changeMethod gives a frontend another forwarding mode, if its backends allow it.
func changeMethod(rng *rand.Rand, f *desired.Frontend) {
	was := f.Backends[0].Addr.Addr().Is6() == f.VIP.Is6()
	method := pick(rng, service.Methods)
	if !was || f.Method == service.DR || method == service.DR {
		return
	}
	f.Method, f.Encapsulation = method, ""
	if method == service.Tunnel {
		f.Encapsulation = pick(rng, service.Encapsulations)
	}
}

// change has the agent change a frontend, selected by a number.
func (t *Target) change(number uint64) error {
	if len(t.asked) == 0 {
		return nil
	}
	if number>>60 == 0 {
		return t.changePressure(number)
	}
	rng := rand.New(rand.NewPCG(number, 7))
	i := int(number&0xffff) % len(t.asked)
	f := t.asked[i]
	vary(rng, &f)
	return t.put(i, f)
}

func (t *Target) put(i int, f desired.Frontend) error {
	if err := t.releasePressure(); err != nil {
		return err
	}
	err := t.plane.Upsert(f)
	if errors.Is(err, dataplane.ErrUnsupported) {
		return t.putPressure()
	}
	if err != nil {
		return err
	}
	t.asked[i] = f
	t.changed[i] = true
	return t.readConfig()
}

// undoChanges restores the frontends of the world.
func (t *Target) undoChanges() error {
	if len(t.changed) == 0 {
		return nil
	}
	if err := t.releasePressure(); err != nil {
		return err
	}
	for i := range t.changed {
		if err := t.plane.Upsert(t.world[i]); err != nil {
			return err
		}
		t.asked[i] = t.world[i]
	}
	clear(t.changed)
	return t.readConfig()
}
