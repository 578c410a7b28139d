package balancer

import (
	"encoding/binary"
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

// frontend is what the model knows about a frontend: its configuration, and where the
// agent has put its table. Which backend owns a slot is the agent's choice, which other
// tests check; what follows from it is up to the programs.
type frontend struct {
	desired.Frontend
	stateful, guarded, chance bool
	nat, full                 bool
	hashBy                    schedule.By
	affinity                  uint32 // seconds
	keepPort                  bool

	id          uint32
	turn        uint32 // of rr and wrr
	turned      bool   // in this case
	entry       []byte // in the map, with its key
	key         []byte
	ring        []byte // its slots
	slots       uint32
	limits      limits
	pressure    pressure
	inRange     int // its index in port_ranges; -1 if it has its own entry
	first, last uint16
}

// server is a backend by its ID.
type server struct {
	wire.Endpoint
	id, generation uint32
	used, drains   bool
	maxConns       uint32
	version        uint64 // when it was read
}

// limit is one of a frontend's rate limits, in the units of its bucket.
type limit struct{ step, depth uint64 }

type limits struct {
	some                                      bool
	eachPacket, eachOpen, allPackets, allOpen limit
	batchPackets, batchOpens                  uint32
}

type vipPort struct {
	vip   wire.Addr
	port  uint16
	proto byte
}

// config is everything that the agent has written for the programs.
type config struct {
	frontends []*frontend
	byPort    map[vipPort]*frontend
	wide      map[wire.Addr]*wholeVIP // every VIP
	reader    *reader
	version   uint64                     // of the agent's state
	servers   []server                   // as read last
	chains    map[uint32][]wire.Endpoint // those read in this version
	natServer map[wire.Addr]bool
	anyNAT    bool
	portFirst uint32 // of fullnat's source ports
	portCount uint32
	own4      wire.Addr
	own6      wire.Addr
	known     map[wire.Addr]bool // load balancers
	draining  [2][]wire.Addr     // IPv4, IPv6
	asks      bool
}

// wholeVIP is a VIP's configuration in addition to its single ports.
type wholeVIP struct {
	ranges []*frontend // in lookup order
	whole  *frontend   // nil: nothing else has a frontend
}

// reader reads the agent's maps by the names of C's fields.
type reader struct {
	settings                                                 *ebpf.Map
	maps                                                     map[string]*ebpf.Map
	frontend, serverAt, chainAt, portRange, limits, set, syn packetfuzz.Layout
	isGuarded, isChecked                                     uint32 // flags of a frontend
	segments                                                 map[uint32][]byte
}

func newReader(o *packetfuzz.Object, live map[string]*ebpf.Map) (r *reader, err error) {
	r = &reader{maps: live, settings: o.Maps[".data.settings"], segments: map[uint32][]byte{}}
	for name, l := range map[string]*packetfuzz.Layout{
		"frontend": &r.frontend, "server": &r.serverAt, "chain": &r.chainAt, "port_range": &r.portRange,
		"guard_limits": &r.limits, "settings": &r.set, "syn_settings": &r.syn,
	} {
		if *l, err = packetfuzz.LayoutOf(o.Spec.Types, name); err != nil {
			return nil, err
		}
	}
	flags, err := packetfuzz.EnumOf(o.Spec.Types, "frontend_flags")
	for bit, name := range flags {
		switch name {
		case "FRONTEND_SYN_GUARDED":
			r.isGuarded = uint32(bit)
		case "FRONTEND_SYN_CHECKED":
			r.isChecked = uint32(bit)
		}
	}
	return r, err
}

func u32(b []byte, at int) uint32 { return binary.NativeEndian.Uint32(b[at:]) }

// read reads everything for the configured frontends.
func (r *reader) read(c *config, asked []desired.Frontend) error {
	c.frontends, c.byPort, c.wide = c.frontends[:0], map[vipPort]*frontend{}, map[wire.Addr]*wholeVIP{}
	c.natServer, c.anyNAT = map[wire.Addr]bool{}, false
	if c.servers == nil {
		c.servers = make([]server, r.maps["servers"].MaxEntries())
	}
	c.reader, c.chains = r, map[uint32][]wire.Endpoint{}
	c.version++
	for _, f := range asked {
		m := newFrontend(f)
		if c.wide[m.vip()] == nil {
			c.wide[m.vip()] = &wholeVIP{}
		}
		if m.Method == service.NAT {
			c.anyNAT = true
			for _, b := range f.Backends {
				c.natServer[wire.Addr(b.Addr.Addr().As16())] = true
			}
		}
		if err := r.find(c, m); err != nil {
			return fmt.Errorf("%s: %w", f.Key, err)
		}
		c.frontends = append(c.frontends, m)
	}
	for _, w := range c.wide {
		slices.SortFunc(w.ranges, func(a, b *frontend) int { return a.inRange - b.inRange })
	}
	return r.readSettings(c)
}

func (f *frontend) vip() wire.Addr { return f.VIP.As16() }

func newFrontend(f desired.Frontend) *frontend {
	m := &frontend{
		Frontend: f, stateful: f.Stateful(), guarded: f.Guarded(), hashBy: f.HashBy(), inRange: -1,
		chance: f.SecondChance() || f.Survival == service.SecondChance, keepPort: f.Backends[0].Addr.Port() == 0,
		nat: f.Method == service.NAT || f.Method == service.FullNAT, full: f.Method == service.FullNAT,
		affinity: uint32(f.Affinity.Seconds()), first: f.Port, last: f.Last,
	}
	return m
}

func keyBytes(vip wire.Addr, port uint16, proto byte) []byte {
	k := append([]byte(nil), vip[:]...)
	return append(binary.BigEndian.AppendUint16(k, port), proto, 0)
}

// find finds a frontend's entry, where the agent must have put it.
func (r *reader) find(c *config, m *frontend) (err error) {
	if !m.Range() {
		m.key = keyBytes(m.vip(), m.Port, byte(m.Protocol))
		m.entry, err = r.maps["frontends"].LookupBytes(m.key)
		c.byPort[vipPort{m.vip(), m.Port, byte(m.Protocol)}] = m
	} else {
		m.key = keyBytes(m.vip(), 0, 0)
		m.entry, err = r.maps["frontends"].LookupBytes(m.key)
	}
	if err != nil || m.entry == nil {
		return fmt.Errorf("no entry: %w", err)
	}
	if m.Whole() && m.Protocol == service.AnyProtocol {
		c.wide[m.vip()].whole = m
	} else if m.Range() {
		if err := r.findRange(c, m); err != nil {
			return err
		}
	}
	return r.describe(m)
}

// findRange finds a range among those of its VIP.
func (r *reader) findRange(c *config, m *frontend) error {
	first, n := u32(m.entry, r.frontend.At("range")), u32(m.entry, r.frontend.At("ranges"))
	for i := range n {
		b, err := r.maps["port_ranges"].LookupBytes(first + i)
		if err != nil {
			return err
		}
		from, to := binary.NativeEndian.Uint16(b[r.portRange.At("first"):]), binary.NativeEndian.Uint16(b[r.portRange.At("last"):])
		if from == m.first && to == m.last && b[r.portRange.At("proto")] == byte(m.Protocol) {
			m.entry, m.inRange = b[r.portRange.At("f"):], int(first+i)
			c.wide[m.vip()].ranges = append(c.wide[m.vip()].ranges, m)
			return nil
		}
	}
	return fmt.Errorf("its port range is not among the %d programmed ones", n)
}

// describe reads what the model needs from an entry.
func (r *reader) describe(m *frontend) error {
	l := r.frontend
	m.id, m.slots, m.turn = u32(m.entry, l.At("id")), u32(m.entry, l.At("slots")), u32(m.entry, l.At("turn"))
	if m.slots > 0 {
		segment, err := r.segment(u32(m.entry, l.At("segment")))
		if err != nil {
			return err
		}
		at := 8 * u32(m.entry, l.At("slot"))
		m.ring = segment[at : at+8*m.slots]
	}
	b, err := r.maps["guard_limits"].LookupBytes(m.id)
	if err != nil || b == nil {
		return err
	}
	one := func(name string) limit {
		at := r.limits.At(name)
		return limit{binary.NativeEndian.Uint64(b[at:]), binary.NativeEndian.Uint64(b[at+8:])}
	}
	m.limits = limits{
		some:       true,
		eachPacket: one("each_packet"), eachOpen: one("each_open"), allPackets: one("all_packets"), allOpen: one("all_opens"),
		batchPackets: u32(b, r.limits.At("batch_packets")), batchOpens: u32(b, r.limits.At("batch_opens")),
	}
	return nil
}

// segment mmaps a segment of tables.
func (r *reader) segment(i uint32) ([]byte, error) {
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

// server returns the backend with an ID, in the agent's current state.
func (c *config) server(id uint32) *server {
	if int(id) >= len(c.servers) {
		return &server{}
	}
	if s := &c.servers[id]; s.version != c.version {
		*s = c.reader.server(id)
		s.version = c.version
	}
	return &c.servers[id]
}

// chain returns the endpoints of a chain, in the agent's current state.
func (c *config) chain(i uint32) []wire.Endpoint {
	held, ok := c.chains[i]
	if !ok {
		held = c.reader.chain(i)
		c.chains[i] = held
	}
	return held
}

// value reads an array element, all of which the agent has.
func (r *reader) value(name string, i uint32) []byte {
	b, err := r.maps[name].LookupBytes(i)
	if err != nil || b == nil {
		panic(fmt.Sprintf("%s has no entry %d: %v", name, i, err))
	}
	return b
}

func (r *reader) server(id uint32) server {
	b, l := r.value("servers", id), r.serverAt
	return server{
		Endpoint: wire.Endpoint{Addr: wire.Addr(b[l.At("addr"):][:16]), Port: binary.BigEndian.Uint16(b[l.At("port"):])},
		id:       id, generation: u32(b, l.At("generation")), used: b[l.At("used")] != 0, drains: b[l.At("drains")] != 0,
		maxConns: u32(b, l.At("max_conns")),
	}
}

func (r *reader) chain(i uint32) (list []wire.Endpoint) {
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

func (r *reader) readSettings(c *config) error {
	b, err := r.settings.LookupBytes(uint32(0))
	if err != nil {
		return err
	}
	c.own4, c.own6 = wire.Addr(b[r.set.At("own4"):][:16]), wire.Addr(b[r.set.At("own6"):][:16])
	c.portFirst = uint32(binary.NativeEndian.Uint16(b[r.set.At("port_first"):]))
	c.portCount = uint32(binary.NativeEndian.Uint16(b[r.set.At("port_count"):]))
	return nil
}

// find returns the frontend of a packet; vip means that the address is a VIP, which may
// have no frontend for this packet.
func (c *config) find(t *wire.Tuple) (f *frontend, vip bool) {
	w := c.wide[t.Dst]
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

// exact returns the frontend of exactly this port.
func (c *config) exact(t *wire.Tuple) *frontend { return c.byPort[vipPort{t.Dst, t.DPort, t.Proto}] }

// slot returns the owner of a slot, and the chain of backends that may have its older
// flows.
func (f *frontend) slot(i uint32) (first, chain uint32) {
	return u32(f.ring, int(8*i)), u32(f.ring, int(8*i)+4)
}

// serves reports whether a client is within the source ranges.
func (f *frontend) serves(client *wire.Addr) bool {
	a := netip.AddrFrom16(*client).Unmap()
	has := func(p netip.Prefix) bool { return p.Contains(a) }
	return (len(f.Allow) == 0 || slices.ContainsFunc(f.Allow, has)) && !slices.ContainsFunc(f.Deny, has)
}

// pressure is the state of a frontend.
type pressure struct {
	guarded bool // SYNs are answered
	checked bool // nat and fullnat: ACKs may have cookies
}

// pressureOf returns the pressure in a frontend's entry.
func (r *reader) pressureOf(f *frontend) pressure {
	flags := u32(f.entry, r.frontend.At("flags"))
	return pressure{guarded: flags&r.isGuarded != 0, checked: flags&r.isChecked != 0}
}
