package xdp

import (
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/core/ring"
	"github.com/fairlead/fairlead/dataplane/xdp/alloc"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
	"github.com/fairlead/fairlead/dataplane/xdp/flowtable"
	"github.com/fairlead/fairlead/internal/netorder"
)

// serverKey identifies a server: all stateless frontends with that address and port share
// one, others have separate ones.
type serverKey struct {
	addr  netip.AddrPort
	owner uint32 // 0: shared; else a frontend's id + 1
}

func ownerOf(v bpf.BalancerFrontend) uint32 {
	if v.Flags&bpf.BalancerFrontendFlagsFRONTEND_STATEFUL == 0 {
		return 0
	}
	return v.Id + 1
}

// server is an entry of the servers map.
type server struct {
	id       uint32
	key      serverKey
	maxConns uint32
	drains   bool // accepts no new flows, even from clients with affinity
	members  int  // number of frontends that have it
	written  bool // not only in this process's memory
}

// serverTable is this process's copy of the servers map.
type serverTable struct {
	numbers     alloc.Pool
	byKey       map[serverKey]*server
	byID        map[uint32]*server
	generations []uint32 // of each number's last owner
}

func newServerTable(max uint32, rouse func() error) serverTable {
	return serverTable{
		numbers: alloc.NewPool("backends (MaxBackends)", 1, max+1, rouse),
		byKey:   map[serverKey]*server{}, byID: map[uint32]*server{},
		generations: make([]uint32, max+1),
	}
}

// take returns a server for one more frontend.
func (t *serverTable) take(k serverKey) (*server, error) {
	s := t.byKey[k]
	if s == nil {
		id, err := t.numbers.Take()
		if err != nil {
			return nil, err
		}
		s = &server{id: id, key: k}
		t.byKey[k], t.byID[id] = s, s
	}
	s.members++
	return s, nil
}

// release records that a frontend no longer has s, and reports whether it was the last.
func (t *serverTable) release(s *server) (last bool) {
	if s.members--; s.members > 0 {
		return false
	}
	delete(t.byKey, s.key)
	delete(t.byID, s.id)
	t.numbers.GiveBack(s.id)
	return true
}

// addrOf returns the address and port of a number, invalid if it is unused.
func (t *serverTable) addrOf(id uint32) netip.AddrPort {
	if s := t.byID[id]; s != nil {
		return s.key.addr
	}
	return netip.AddrPort{}
}

// owners returns the servers that flows can have.
func (t *serverTable) owners() flowtable.Owners {
	current := make([]uint32, len(t.generations))
	for id := range t.byID {
		current[id] = flowtable.Owner(t.generations[id])
	}
	return flowtable.Owners{Current: current, Generations: t.generations}
}

// shared returns the number of the stateless frontends' server, 0 without one.
func (t *serverTable) shared(addr netip.AddrPort) ring.ID {
	if s := t.byKey[serverKey{addr: addr}]; s != nil {
		return s.id
	}
	return 0
}

// writeNew writes the new servers of a frontend, which no ring uses yet, and invalidates
// the state of their numbers' previous owners.
func (d *DataPlane) writeNew(ms members) error {
	t := &d.servers
	var fresh []*server
	for _, m := range ms {
		if m.written {
			continue
		}
		fresh = append(fresh, m.server)
		d.flows.NextOwner(m.id, t.generations[m.id]+1, t.owners)
	}
	if len(fresh) == 0 {
		return nil
	}
	ids, entries := make([]uint32, len(fresh)), make([]bpf.BalancerServer, len(fresh))
	for i, s := range fresh {
		if t.generations[s.id] != 0 { // else the counters are still zero
			if err := bpf.ZeroCPUs(d.kernel.ServerCpu, s.id); err != nil {
				return err
			}
		}
		t.generations[s.id]++
		d.flows.Forget(s.id)
		ids[i], entries[i] = s.id, t.entry(s, 1)
	}
	if _, err := d.kernel.Servers.BatchUpdate(ids, entries, nil); err != nil {
		return fmt.Errorf("write %d backends, the first of which is %s: %w", len(fresh), fresh[0].key.addr, err)
	}
	for _, s := range fresh {
		s.written = true
	}
	return nil
}

func (d *DataPlane) writeServer(s *server) error {
	if err := d.kernel.Servers.Put(s.id, d.servers.entry(s, 1)); err != nil {
		return fmt.Errorf("write backend %s: %w", s.key.addr, err)
	}
	return nil
}

func (t *serverTable) entry(s *server, used uint8) bpf.BalancerServer {
	return bpf.BalancerServer{
		Addr: entry.ToAddr(s.key.addr.Addr()), Port: netorder.Port(s.key.addr.Port()),
		Frontend: s.key.owner, Generation: t.generations[s.id], Used: used, MaxConns: s.maxConns,
		Drains: oneIf(s.drains),
	}
}

func oneIf(is bool) uint8 {
	if is {
		return 1
	}
	return 0
}

// endServer frees a number. The address stays for packets in flight, the generation for
// the next owner to increment.
func (d *DataPlane) endServer(s *server) error {
	if err := d.kernel.Servers.Put(s.id, d.servers.entry(s, 0)); err != nil {
		return fmt.Errorf("free backend %s: %w", s.key.addr, err)
	}
	return nil
}

// readServers reads the map. Servers in use have no members yet.
func (d *DataPlane) readServers() (serverTable, error) {
	t := newServerTable(d.kernel.Servers.MaxEntries()-1, d.grace)
	values := make([]bpf.BalancerServer, d.kernel.Servers.MaxEntries())
	n, err := bpf.ReadArray(d.kernel.Servers, values)
	if err != nil {
		return t, fmt.Errorf("xdp: read backends: %w", err)
	}
	for id, v := range values[:n] {
		t.generations[id] = v.Generation
		if v.Used == 0 {
			continue
		}
		addr := netip.AddrPortFrom(entry.FromAddr(v.Addr), netorder.Port(v.Port))
		s := &server{id: uint32(id), key: serverKey{addr, v.Frontend}, maxConns: v.MaxConns, drains: v.Drains != 0, written: true}
		t.byID[s.id] = s
	}
	return t, nil
}
