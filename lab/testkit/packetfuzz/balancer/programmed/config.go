// Package programmed reads what the agent has written for the load balancer's programs:
// frontends, backends, tables and settings.
//
// What does not belong here: what programs write (balancer), and what follows from the
// configuration for a packet (model).
package programmed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// Frontend is what the model knows about a frontend: its configuration, and where the
// agent has put its table. Which backend owns a slot is the agent's choice, which other
// tests check; what follows from it is up to the programs.
type Frontend struct {
	desired.Frontend
	Stateful, Guarded, Chance bool
	Nat, Full                 bool
	HashBy                    schedule.By
	Affinity                  uint32 // seconds
	KeepPort                  bool

	Id          uint32
	Turn        uint32 // of rr and wrr
	Turned      bool   // in this case
	Entry       []byte // in the map, with its key
	Key         []byte
	ring        []byte // its slots
	list        []byte // of a narrow ring
	Slots       uint32
	Limits      limits
	Pressure    Pressure
	InRange     int // its index in port_ranges; -1 if it has its own entry
	first, last uint16
}

// Server is a backend by its ID.
type Server struct {
	wire.Endpoint
	Id, Generation uint32
	Used, Drains   bool
	MaxConns       uint32
	version        uint64 // when it was read
}

// Limit is one of a frontend's rate limits, in the units of its bucket.
type Limit struct{ Step, Depth uint64 }

type limits struct {
	Some                                      bool
	EachPacket, EachOpen, AllPackets, AllOpen Limit
	BatchPackets, BatchOpens                  uint32
}

type vipPort struct {
	vip   wire.Addr
	port  uint16
	proto byte
}

// Config is everything that the agent has written for the programs.
type Config struct {
	Frontends []*Frontend
	byPort    map[vipPort]*Frontend
	Wide      map[wire.Addr]*wholeVIP // every VIP
	reader    *Reader
	version   uint64                     // of the agent's state
	servers   []Server                   // as read last
	chains    map[uint32][]wire.Endpoint // those read in this version
	natServer map[wire.Addr]bool
	AnyNAT    bool
	PortFirst uint32 // of fullnat's source ports
	PortCount uint32
	Own4      wire.Addr
	Own6      wire.Addr
	Known     map[wire.Addr]bool // load balancers
	Draining  [2][]wire.Addr     // IPv4, IPv6
	Asks      bool
}

// wholeVIP is a VIP's configuration in addition to its single ports.
type wholeVIP struct {
	ranges []*Frontend // in lookup order
	whole  *Frontend   // nil: nothing else has a frontend
}

// Reader reads the agent's maps by the names of C's fields.
type Reader struct {
	settings                                                 *ebpf.Map
	maps                                                     map[string]*ebpf.Map
	Frontend, serverAt, chainAt, PortRange, limits, Set, Syn packetfuzz.Layout
	IsGuarded, IsChecked                                     uint32 // flags of a frontend
	segments                                                 map[uint32][]byte
	frontends, guards                                        *packetfuzz.Hash
	narrow                                                   byte // of an entry's scheduler: a narrow ring
	held                                                     held
}

// held is what a Read has read.
type held struct {
	frontends map[string][]byte // by key
	limits    map[uint32][]byte // by frontend
	ranges    map[uint32][]byte
}

func NewReader(o *packetfuzz.Object, live map[string]*ebpf.Map) (r *Reader, err error) {
	r = &Reader{maps: live, settings: o.Maps[".data.settings"], segments: map[uint32][]byte{}}
	r.frontends, r.guards = packetfuzz.NewHash(live["frontends"]), packetfuzz.NewHash(live["guard_limits"])
	for name, l := range map[string]*packetfuzz.Layout{
		"frontend": &r.Frontend, "server": &r.serverAt, "chain": &r.chainAt, "port_range": &r.PortRange,
		"guard_limits": &r.limits, "settings": &r.Set, "syn_settings": &r.Syn,
	} {
		if *l, err = packetfuzz.LayoutOf(o.Spec.Types, name); err != nil {
			return nil, err
		}
	}
	schedulers, err := packetfuzz.EnumOf(o.Spec.Types, "scheduler")
	if err != nil {
		return nil, err
	}
	for bit, name := range schedulers {
		if name == "SCHEDULER_NARROW" {
			r.narrow = byte(bit)
		}
	}
	flags, err := packetfuzz.EnumOf(o.Spec.Types, "frontend_flags")
	for bit, name := range flags {
		switch name {
		case "FRONTEND_SYN_GUARDED":
			r.IsGuarded = uint32(bit)
		case "FRONTEND_SYN_CHECKED":
			r.IsChecked = uint32(bit)
		}
	}
	return r, err
}

func U32(b []byte, at int) uint32 { return binary.NativeEndian.Uint32(b[at:]) }

// Read reads everything for the configured frontends.
func (r *Reader) Read(c *Config, asked []desired.Frontend) error {
	c.Frontends, c.byPort, c.Wide = c.Frontends[:0], map[vipPort]*Frontend{}, map[wire.Addr]*wholeVIP{}
	c.natServer, c.AnyNAT = map[wire.Addr]bool{}, false
	if c.servers == nil {
		c.servers = make([]Server, r.maps["servers"].MaxEntries())
	}
	c.reader, c.chains = r, map[uint32][]wire.Endpoint{}
	c.version++
	if err := r.hold(); err != nil {
		return err
	}
	for _, f := range asked {
		m := newFrontend(f)
		if c.Wide[m.vip()] == nil {
			c.Wide[m.vip()] = &wholeVIP{}
		}
		if m.Method == service.NAT {
			c.AnyNAT = true
			for _, b := range f.Backends {
				c.natServer[wire.Addr(b.Addr.Addr().As16())] = true
			}
		}
		if err := r.find(c, m); err != nil {
			return fmt.Errorf("%s: %w", f.Key, err)
		}
		c.Frontends = append(c.Frontends, m)
	}
	for _, w := range c.Wide {
		slices.SortFunc(w.ranges, func(a, b *Frontend) int { return a.InRange - b.InRange })
	}
	return r.readSettings(c)
}

// hold reads all entries of frontends: single lookups take longer than several cases.
func (r *Reader) hold() error {
	r.held = held{frontends: map[string][]byte{}, limits: map[uint32][]byte{}, ranges: map[uint32][]byte{}}
	n, err := r.frontends.Read()
	if err != nil {
		return err
	}
	for i := range n {
		key, value := r.frontends.Entry(i)
		r.held.frontends[string(key)] = slices.Clone(value)
	}
	if n, err = r.guards.Read(); err != nil {
		return err
	}
	for i := range n {
		key, value := r.guards.Entry(i)
		r.held.limits[U32(key, 0)] = value
	}
	return nil
}

func (f *Frontend) vip() wire.Addr { return f.VIP.As16() }

func newFrontend(f desired.Frontend) *Frontend {
	m := &Frontend{
		Frontend: f, Stateful: f.Stateful(), Guarded: f.Guarded(), HashBy: f.HashBy(), InRange: -1,
		Chance: f.SecondChance() || f.Survival == service.SecondChance, KeepPort: f.Backends[0].Addr.Port() == 0,
		Nat: f.Method == service.NAT || f.Method == service.FullNAT, Full: f.Method == service.FullNAT,
		Affinity: uint32(f.Affinity.Seconds()), first: f.Port, last: f.Last,
	}
	return m
}

func keyBytes(vip wire.Addr, port uint16, proto byte) []byte {
	k := append([]byte(nil), vip[:]...)
	return append(binary.BigEndian.AppendUint16(k, port), proto, 0)
}

// find finds a frontend's entry, where the agent must have put it.
func (r *Reader) find(c *Config, m *Frontend) error {
	if !m.Range() {
		m.Key = keyBytes(m.vip(), m.Port, byte(m.Protocol))
		c.byPort[vipPort{m.vip(), m.Port, byte(m.Protocol)}] = m
	} else {
		m.Key = keyBytes(m.vip(), 0, 0)
	}
	if m.Entry = r.held.frontends[string(m.Key)]; m.Entry == nil {
		return errors.New("no entry")
	}
	if m.Whole() && m.Protocol == service.AnyProtocol {
		c.Wide[m.vip()].whole = m
	} else if m.Range() {
		if err := r.findRange(c, m); err != nil {
			return err
		}
	}
	return r.describe(m)
}

// findRange finds a range among those of its VIP.
func (r *Reader) findRange(c *Config, m *Frontend) error {
	first, n := U32(m.Entry, r.Frontend.At("range")), U32(m.Entry, r.Frontend.At("ranges"))
	for i := range n {
		b, err := r.portRange(first + i)
		if err != nil {
			return err
		}
		from, to := binary.NativeEndian.Uint16(b[r.PortRange.At("first"):]), binary.NativeEndian.Uint16(b[r.PortRange.At("last"):])
		if from == m.first && to == m.last && b[r.PortRange.At("proto")] == byte(m.Protocol) {
			m.Entry, m.InRange = b[r.PortRange.At("f"):], int(first+i)
			c.Wide[m.vip()].ranges = append(c.Wide[m.vip()].ranges, m)
			return nil
		}
	}
	return fmt.Errorf("its port range is not among the %d programmed ones", n)
}

func (r *Reader) portRange(i uint32) (b []byte, err error) {
	if b = r.held.ranges[i]; b == nil {
		b, err = r.maps["port_ranges"].LookupBytes(i)
		r.held.ranges[i] = b
	}
	return b, err
}

// describe reads what the model needs from an entry.
func (r *Reader) describe(m *Frontend) error {
	l := r.Frontend
	m.Id, m.Slots, m.Turn = U32(m.Entry, l.At("id")), U32(m.Entry, l.At("slots")), U32(m.Entry, l.At("turn"))
	if m.Slots > 0 {
		segment, err := r.segment(U32(m.Entry, l.At("segment")))
		if err != nil {
			return err
		}
		at := 8 * U32(m.Entry, l.At("slot"))
		if m.ring = segment[at:]; m.Entry[l.At("scheduler")]&r.narrow != 0 {
			m.list = segment[at+(m.Slots+7)/8*8:]
		}
	}
	b := r.held.limits[m.Id]
	if b == nil {
		return nil
	}
	one := func(name string) Limit {
		at := r.limits.At(name)
		return Limit{binary.NativeEndian.Uint64(b[at:]), binary.NativeEndian.Uint64(b[at+8:])}
	}
	m.Limits = limits{
		Some:       true,
		EachPacket: one("each_packet"), EachOpen: one("each_open"), AllPackets: one("all_packets"), AllOpen: one("all_opens"),
		BatchPackets: U32(b, r.limits.At("batch_packets")), BatchOpens: U32(b, r.limits.At("batch_opens")),
	}
	return nil
}

// segment mmaps a segment of tables.
func (r *Reader) segment(i uint32) ([]byte, error) {
	if s := r.segments[i]; s != nil {
		return s, nil
	}
	var inner *ebpf.Map
	if err := r.maps["rings"].Lookup(i, &inner); err != nil {
		return nil, fmt.Errorf("segment %d of rings: %w", i, err)
	}
	defer inner.Close()
	s, err := packetfuzz.Memory(inner)
	r.segments[i] = s
	return s, err
}

// Server returns the backend with an ID, in the agent's current state.
func (c *Config) Server(id uint32) *Server {
	if int(id) >= len(c.servers) {
		return &Server{}
	}
	if s := &c.servers[id]; s.version != c.version {
		*s = c.reader.server(id)
		s.version = c.version
	}
	return &c.servers[id]
}

// Chain returns the endpoints of a chain, in the agent's current state.
func (c *Config) Chain(i uint32) []wire.Endpoint {
	held, ok := c.chains[i]
	if !ok {
		held = c.reader.chain(i)
		c.chains[i] = held
	}
	return held
}

// value reads an array element, all of which the agent has.
func (r *Reader) value(name string, i uint32) []byte {
	b, err := r.maps[name].LookupBytes(i)
	if err != nil || b == nil {
		panic(fmt.Sprintf("%s has no entry %d: %v", name, i, err))
	}
	return b
}

func (r *Reader) server(id uint32) Server {
	b, l := r.value("servers", id), r.serverAt
	return Server{
		Endpoint: wire.Endpoint{Addr: wire.Addr(b[l.At("addr"):][:16]), Port: binary.BigEndian.Uint16(b[l.At("port"):])},
		Id:       id, Generation: U32(b, l.At("generation")), Used: b[l.At("used")] != 0, Drains: b[l.At("drains")] != 0,
		MaxConns: U32(b, l.At("max_conns")),
	}
}

func (r *Reader) chain(i uint32) (list []wire.Endpoint) {
	b, l := r.value("chains", i), r.chainAt
	at := l.At("bytes")
	for range b[l.At("n")] {
		if b[l.At("v6")] != 0 {
			list = append(list, wire.Endpoint{Addr: wire.From6(b[at:]), Port: binary.BigEndian.Uint16(b[at+16:])})
			at += 18
		} else {
			list = append(list, wire.Endpoint{Addr: wire.From4(b[at:]), Port: binary.BigEndian.Uint16(b[at+4:])})
			at += 6
		}
	}
	return list
}

func (r *Reader) readSettings(c *Config) error {
	b, err := r.settings.LookupBytes(uint32(0))
	if err != nil {
		return err
	}
	c.Own4, c.Own6 = wire.Addr(b[r.Set.At("own4"):][:16]), wire.Addr(b[r.Set.At("own6"):][:16])
	c.PortFirst = uint32(binary.NativeEndian.Uint16(b[r.Set.At("port_first"):]))
	c.PortCount = uint32(binary.NativeEndian.Uint16(b[r.Set.At("port_count"):]))
	return nil
}

// Find returns the frontend of a packet; vip means that the address is a VIP, which may
// have no frontend for this packet.
func (c *Config) Find(t *wire.Tuple) (f *Frontend, vip bool) {
	w := c.Wide[t.Dst]
	if w == nil {
		return nil, false
	}
	if f := c.byPort[vipPort{t.Dst, t.DPort, t.Proto}]; f != nil {
		return f, true
	}
	for _, f := range w.ranges {
		if byte(f.Protocol) == t.Proto && t.DPort >= f.first && t.DPort <= f.last {
			return f, true
		}
	}
	return w.whole, true
}

// Exact returns the frontend of exactly this port.
func (c *Config) Exact(t *wire.Tuple) *Frontend { return c.byPort[vipPort{t.Dst, t.DPort, t.Proto}] }

// Slot returns the owner of a slot, and the chain of backends that may have its older
// flows.
func (f *Frontend) Slot(i uint32) (first, chain uint32) {
	if f.list != nil {
		at := 8 * int(f.ring[i])
		return U32(f.list, at), U32(f.list, at+4)
	}
	return U32(f.ring, int(8*i)), U32(f.ring, int(8*i)+4)
}

// Serves reports whether a client is within the source ranges.
func (f *Frontend) Serves(client *wire.Addr) bool {
	a := netip.AddrFrom16(*client).Unmap()
	has := func(p netip.Prefix) bool { return p.Contains(a) }
	return (len(f.Allow) == 0 || slices.ContainsFunc(f.Allow, has)) && !slices.ContainsFunc(f.Deny, has)
}

// Pressure is the state of a frontend.
type Pressure struct {
	Guarded bool // SYNs are answered
	Checked bool // Nat and fullnat: ACKs may have cookies
}

// PressureOf returns the pressure in a frontend's entry.
func (r *Reader) PressureOf(f *Frontend) Pressure {
	flags := U32(f.Entry, r.Frontend.At("flags"))
	return Pressure{Guarded: flags&r.IsGuarded != 0, Checked: flags&r.IsChecked != 0}
}
