package serverhalf

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/internal/netorder"
	"github.com/fairlead/fairlead/service"
)

// Entry is one frontend at one server.
type Entry struct {
	service.Key
	// Method is service.Tunnel or service.DirectNAT.
	Method service.Method
	// Server is where the balancer sends: the outer destination in the
	// tunnel, and the port at which the server listens.
	Server netip.AddrPort
	// Deliver is the server's address in the VIP's family where Server is of
	// the other one (tunnel only). It may be the VIP itself, for a server that
	// does hold it. The zero Addr means Server's own.
	Deliver netip.Addr
}

// String gives "tunnel TCP 10.1.1.1:80 at 172.16.1.2:8080".
func (e Entry) String() string { return fmt.Sprintf("%s %s at %s", e.Method, e.Key, e.Server) }

// Delivered is the server as it is addressed in the end, and as its flows have
// it.
func (e Entry) Delivered() netip.AddrPort {
	if e.Deliver.IsValid() {
		return netip.AddrPortFrom(e.Deliver, e.Server.Port())
	}
	return e.Server
}

// Compare orders entries by frontend, server and method.
func (e Entry) Compare(o Entry) int {
	return cmp.Or(e.Key.Compare(o.Key), e.Server.Compare(o.Server), cmp.Compare(e.Method, o.Method),
		e.Deliver.Compare(o.Deliver))
}

// Entries gives what a frontend asks of the server halves: one entry a backend,
// none where the method leads back through the balancer.
func Entries(f dataplane.Frontend) []Entry {
	if f.Method != service.Tunnel && f.Method != service.DirectNAT {
		return nil
	}
	entries := make([]Entry, 0, len(f.Backends))
	for _, b := range f.Backends {
		entries = append(entries, Entry{Key: f.Key, Method: f.Method, Server: b.Addr})
	}
	return entries
}

// plain is the entry in the one form that the maps know.
func (e Entry) plain() Entry {
	e.VIP = e.VIP.Unmap()
	e.Server = netip.AddrPortFrom(e.Server.Addr().Unmap(), e.Server.Port())
	e.Deliver = e.Deliver.Unmap()
	if !e.Deliver.IsValid() {
		e.Deliver = e.Server.Addr()
	}
	return e
}

// check says what is wrong with an entry in its plain form.
func (e Entry) check() error {
	switch {
	case e.Method != service.Tunnel && e.Method != service.DirectNAT:
		return fmt.Errorf("method %q needs no server half: use %q or %q", e.Method, service.Tunnel, service.DirectNAT)
	case e.Protocol != service.TCP && e.Protocol != service.UDP:
		return fmt.Errorf("protocol %s: use TCP or UDP", e.Protocol)
	case !usable(e.VIP) || e.Port == 0:
		return errors.New("VIP: must be a unicast address and a port")
	case !usable(e.Server.Addr()) || e.Server.Port() == 0:
		return errors.New("server: must be a unicast address and a port")
	case e.Method == service.DirectNAT && e.Server.Addr().Is4() != e.VIP.Is4():
		return errors.New("server and VIP are of two families: use tunnel, or a server of the VIP's family")
	case e.Method == service.DirectNAT && e.Deliver != e.Server.Addr():
		return errors.New("deliver: only for tunnel")
	case e.Deliver.Is4() != e.VIP.Is4():
		return errors.New("server and VIP are of two families: say in deliver which address of the VIP's family the server has")
	}
	return nil
}

func usable(a netip.Addr) bool {
	return a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() && a.Zone() == ""
}

const (
	methodTunnel    = serverServerMethodSERVER_METHOD_TUNNEL
	methodDirectNAT = serverServerMethodSERVER_METHOD_DIRECT_NAT
)

// desired is a valid set of entries, as rows of local_vips by the server's
// address. A row's place is yet to be filled in.
type desired struct {
	servers map[netip.Addr]map[serverLocalVipKey]serverLocalVip
}

// newDesired takes the valid entries and refuses the others by name.
func newDesired(entries []Entry) (*desired, error) {
	d := &desired{servers: map[netip.Addr]map[serverLocalVipKey]serverLocalVip{}}
	var refused []error
	for _, e := range entries {
		p := e.plain()
		err := p.check()
		if err == nil {
			err = d.add(p)
		}
		if err != nil {
			refused = append(refused, fmt.Errorf("%s: %w", e, err))
		}
	}
	return d, errors.Join(refused...)
}

func (d *desired) add(e Entry) error {
	server := e.Server.Addr()
	rows := d.servers[server]
	if rows == nil {
		rows = map[serverLocalVipKey]serverLocalVip{}
		d.servers[server] = rows
	}
	key, row := e.row()
	if old, ok := rows[key]; ok && old != row {
		return fmt.Errorf("the tunnel cannot tell two servers on one address apart, and %s is there already: use direct-nat",
			entryOf(key, old).Server)
	}
	rows[key] = row
	if e.Method == service.DirectNAT {
		addTarget(rows, key, row)
	}
	return nil
}

// addTarget adds the row which says that a server is a direct-nat target; it
// tells the VIP where that is the only one.
func addTarget(rows map[serverLocalVipKey]serverLocalVip, key serverLocalVipKey, row serverLocalVip) {
	target := row
	target.Deliver, target.Port = key.Vip, key.VipPort
	key.Vip, key.VipPort = serverAddr{}, 0
	if old, ok := rows[key]; ok && old != target {
		target.Deliver, target.Port = serverAddr{}, 0
	}
	rows[key] = target
}

func (e Entry) row() (serverLocalVipKey, serverLocalVip) {
	key := serverLocalVipKey{
		Vip: addrOf(e.VIP), VipPort: netorder.Port(e.Port), Server: addrOf(e.Server.Addr()), Proto: uint8(e.Protocol),
	}
	row := serverLocalVip{Deliver: addrOf(e.Deliver), Port: netorder.Port(e.Server.Port()), Method: methodTunnel}
	if e.Method == service.DirectNAT {
		row.Method = methodDirectNAT
		key.ServerPort = row.Port
	}
	return key, row
}

// entryOf reads a row back.
func entryOf(key serverLocalVipKey, row serverLocalVip) Entry {
	e := Entry{
		Key:    service.Key{VIP: key.Vip.netip(), Port: netorder.Port(key.VipPort), Protocol: service.Protocol(key.Proto)},
		Method: service.Tunnel,
		Server: netip.AddrPortFrom(key.Server.netip(), netorder.Port(row.Port)),
	}
	if row.Method == methodDirectNAT {
		e.Method = service.DirectNAT
	}
	if deliver := row.Deliver.netip(); deliver != e.Server.Addr() {
		e.Deliver = deliver
	}
	return e
}

// isTarget tells a direct-nat target's row from an entry's.
func isTarget(key serverLocalVipKey) bool { return key.VipPort == 0 }

func entriesOf(rows map[serverLocalVipKey]serverLocalVip) []Entry {
	var entries []Entry
	for key, row := range rows {
		if !isTarget(key) && row.Left == 0 {
			entries = append(entries, entryOf(key, row))
		}
	}
	slices.SortFunc(entries, Entry.Compare)
	return entries
}

// addrOf and netip are netorder's, for the server half's own type.
func addrOf(ip netip.Addr) serverAddr { return serverAddr{Word: netorder.Words(ip)} }

func (a serverAddr) netip() netip.Addr { return netorder.Addr(a.Word) }
