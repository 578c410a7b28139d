package dsr

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/dataplane/dsr"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// key finds the row of a frontend and a backend (struct local_vip_key).
type key struct {
	vip, server         wire.Addr
	vipPort, serverPort uint16
	proto               byte
}

// row is a frontend and a backend on this node.
type row struct {
	server, deliver wire.Addr
	port            uint16
	first, last     uint16
	method, place   byte
}

// config is what the agent has written for the programs.
type config struct {
	rows    map[key]*row
	next    map[key]uint16 // the port in a range
	known   bool           // next is written
	dr      bool
	senders map[wire.Addr]bool // accepted senders of tunneled packets; nil means all
	sources []dsr.Sources
	mtus    map[uint32]int // of devices
}

// flow returns a packet's flow as the backend sees it.
func (r *row) flow(t *wire.Tuple) *wire.Tuple {
	f := *t
	if f.Dst = r.deliver; r.port != 0 {
		f.DPort = r.port
	}
	return &f
}

// flowOfError returns the flow that an error toward the backend is about.
func (r *row) flowOfError(q *wire.Quoted) *wire.Tuple {
	f := q.Turned()
	return r.flow(&f)
}

// find returns the row of a packet: of exactly its port, or of a range, for its protocol
// or for all.
func (c *config) find(k *key) *row {
	if r := c.rows[*k]; r != nil {
		return r
	}
	whole := *k
	whole.vipPort, whole.serverPort = 0, 0
	for _, proto := range []byte{k.proto, 0} {
		whole.proto = proto
		if r := c.rows[whole]; r != nil && r.last > 0 && k.vipPort >= r.first && k.vipPort <= r.last {
			return r
		}
	}
	return nil
}

// findBare returns the row for packets without ports.
func (c *config) findBare(vip, server *wire.Addr, proto byte) *row {
	k := key{vip: *vip, server: *server, proto: proto}
	if r := c.rows[k]; r != nil {
		return r
	}
	k.proto = 0
	return c.rows[k]
}

// isServer reports whether an endpoint of a list is a backend of a row's frontend. If
// the port counts, it must be that backend's; port 0 is replaced with it.
func (c *config) isServer(e *wire.Endpoint, vip wire.Endpoint, r *row, proto byte, ports bool) bool {
	if !c.known {
		return true
	}
	isRange, counts := r.last > 0, ports && r.method != tunnel
	k := key{vip: vip.Addr, server: e.Addr, proto: proto}
	if ports && !isRange {
		k.vipPort = vip.Port
	}
	if counts && !isRange {
		k.serverPort = e.Port
	}
	port, ok := c.next[k]
	if !ok && isRange {
		k.proto = 0
		port, ok = c.next[k]
	}
	if !ok || !counts || !isRange {
		return ok
	}
	if port == 0 {
		port = vip.Port
	}
	if e.Port == 0 {
		e.Port = port
	}
	return e.Port == port
}

// denied reports whether a client is outside the source ranges of a frontend.
func (c *config) denied(t *wire.Tuple, vip wire.Endpoint, r *row) bool {
	client := netip.AddrFrom16(t.Src).Unmap()
	has := func(p netip.Prefix) bool { return p.Contains(client) }
	s := c.sourcesOf(vip, t.Proto, r.last > 0)
	if s == nil {
		return false
	}
	return len(s.Allow) > 0 && !slices.ContainsFunc(s.Allow, has) || slices.ContainsFunc(s.Deny, has)
}

// sourcesOf returns the source ranges of a frontend: for a range by its protocol, then
// those for all protocols.
func (c *config) sourcesOf(vip wire.Endpoint, proto byte, isRange bool) *dsr.Sources {
	for _, p := range []byte{proto, 0} {
		for i := range c.sources {
			s := &c.sources[i]
			if wire.Addr(s.VIP.As16()) != vip.Addr || byte(s.Protocol) != p || s.Range() != isRange || len(s.Allow)+len(s.Deny) == 0 {
				continue
			}
			if isRange || s.Port == vip.Port {
				return s
			}
		}
		if !isRange {
			return nil
		}
	}
	return nil
}

// reader reads the agent's maps by the names of C's fields.
type reader struct {
	maps            map[string]*ebpf.Map
	key, row, next  packetfuzz.Layout
	known, drServed func() (uint32, error)
	checked         func() (uint32, error)
	keys            map[key]bool // of rows that may exist
}

func newReader(o *packetfuzz.Object, live map[string]*ebpf.Map) (r *reader, err error) {
	r = &reader{maps: live}
	for name, l := range map[string]*packetfuzz.Layout{"local_vip_key": &r.key, "local_vip": &r.row, "next_server": &r.next} {
		if *l, err = packetfuzz.LayoutOf(o.Spec.Types, name); err != nil {
			return nil, err
		}
	}
	variable := func(name string) func() (uint32, error) {
		v := o.Spec.Variables[name]
		return func() (uint32, error) {
			b, err := live[v.SectionName].LookupBytes(uint32(0))
			if err != nil {
				return 0, err
			}
			return binary.NativeEndian.Uint32(b[v.Offset:]), nil
		}
	}
	r.known, r.drServed, r.checked = variable("next_servers_known"), variable("dr_served"), variable("balancers_checked")
	return r, nil
}

func (r *reader) keyOf(b []byte) key {
	l := r.key
	return key{
		vip: wire.Addr(b[l.At("vip"):][:16]), server: wire.Addr(b[l.At("server"):][:16]),
		vipPort: binary.BigEndian.Uint16(b[l.At("vip_port"):]), serverPort: binary.BigEndian.Uint16(b[l.At("server_port"):]), proto: b[l.At("proto")],
	}
}

// bytes encodes struct local_vip_key.
func (r *reader) bytes(k key) []byte {
	b, l := make([]byte, r.key.Size), r.key
	copy(b[l.At("vip"):], k.vip[:])
	copy(b[l.At("server"):], k.server[:])
	binary.BigEndian.PutUint16(b[l.At("vip_port"):], k.vipPort)
	binary.BigEndian.PutUint16(b[l.At("server_port"):], k.serverPort)
	b[l.At("proto")] = k.proto
	return b
}

// expect adds the keys that the agent may give the rows of some entries.
func (r *reader) expect(entries []dsr.Entry) {
	for _, e := range entries {
		k := key{vip: e.VIP.As16(), proto: byte(e.Protocol)}
		for _, k.server = range []wire.Addr{{}, e.Server.Addr().As16()} {
			for _, k.vipPort = range []uint16{0, e.Port} {
				for _, k.serverPort = range []uint16{0, e.Server.Port()} {
					r.keys[k] = true
				}
			}
		}
	}
}

// readAll reads everything. Reading maps as a whole takes longer than a hundred cases.
func (r *reader) readAll(c *config, entries []dsr.Entry) error {
	isFirst := r.keys == nil // there are rows of earlier entries
	if isFirst {
		r.keys = map[key]bool{}
	}
	r.expect(entries)
	found := map[key]bool{}
	var k, v []byte
	for _, m := range []string{"local_vips", "next_servers"} {
		it := r.maps[m].Iterate()
		for it.Next(&k, &v) {
			found[r.keyOf(k)] = true
		}
		if err := it.Err(); err != nil {
			return err
		}
	}
	for k := range found {
		if !r.keys[k] && !isFirst {
			return fmt.Errorf("the agent has programmed %+v, which no entry explains", k)
		}
	}
	r.keys = found
	c.rows, c.next = map[key]*row{}, map[key]uint16{}
	vips := map[wire.Addr]bool{}
	for k := range found {
		vips[k.vip] = true
	}
	if err := r.read(c, entries, vips); err != nil {
		return err
	}
	c.senders = nil
	checked, err := r.checked()
	if err != nil || checked == 0 {
		return err
	}
	c.senders = map[wire.Addr]bool{}
	it := r.maps["balancers"].Iterate()
	for it.Next(&k, &v) {
		c.senders[wire.Addr(k)] = true
	}
	return it.Err()
}

// forgetSenders removes the load balancers of earlier worlds. The agent would accept them
// for another minute, and remove them at any time.
func (r *reader) forgetSenders(but []netip.Addr) error {
	var gone [][]byte
	var k, v []byte
	it := r.maps["balancers"].Iterate()
	for it.Next(&k, &v) {
		if !slices.Contains(but, netip.AddrFrom16(wire.Addr(k)).Unmap()) {
			gone = append(gone, slices.Clone(k))
		}
	}
	for _, k := range gone {
		if err := r.maps["balancers"].Delete(k); err != nil {
			return err
		}
	}
	return it.Err()
}

// read reads what depends on the entries of some VIPs.
func (r *reader) read(c *config, entries []dsr.Entry, vips map[wire.Addr]bool) error {
	r.expect(entries)
	for k := range r.keys {
		if vips[k.vip] {
			if err := r.readRow(c, k); err != nil {
				return err
			}
		}
	}
	known, err := r.known()
	if err != nil {
		return err
	}
	served, err := r.drServed()
	c.known, c.dr = known != 0, served != 0
	return err
}

func (r *reader) readRow(c *config, k key) error {
	delete(c.rows, k)
	delete(c.next, k)
	b, l := r.bytes(k), r.row
	v, err := r.maps["local_vips"].LookupBytes(b)
	if err != nil {
		return err
	}
	if v != nil {
		c.rows[k] = &row{
			server: wire.Addr(v[l.At("server"):][:16]), deliver: wire.Addr(v[l.At("deliver"):][:16]),
			port:  binary.BigEndian.Uint16(v[l.At("port"):]),
			first: binary.NativeEndian.Uint16(v[l.At("first"):]), last: binary.NativeEndian.Uint16(v[l.At("last"):]),
			method: v[l.At("method")], place: v[l.At("place")],
		}
	}
	if v, err = r.maps["next_servers"].LookupBytes(b); v != nil {
		c.next[k] = binary.BigEndian.Uint16(v[r.next.At("port"):])
	}
	return err
}
