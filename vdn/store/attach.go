package store

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/vdn"
)

// Attach gives a request its place; what is there already by the same container
// and interface is given again (created is false). now is in seconds since 1970.
// Whose ctx ends before it is his turn gets nothing: he may have asked to release it
// meanwhile.
func (s *Store) Attach(ctx context.Context, r vdn.AttachmentRequest, now int64) (lease vdn.Lease, created bool, err error) {
	if err := r.Validate(); err != nil {
		return vdn.Lease{}, false, err
	}
	s.write.Lock()
	defer s.write.Unlock()
	if err := ctx.Err(); err != nil {
		return vdn.Lease{}, false, fmt.Errorf("attachment %s: who asked has gone: %w", r.ID(), err)
	}
	n, there := s.mem.networks[r.Network]
	if !there {
		return vdn.Lease{}, false, noNetwork(r.Network)
	}
	if a, again := s.mem.attachments[r.ID()]; again {
		return vdn.Lease{Attachment: a, Network: n}, false, vdn.SameRequest(a, r)
	}
	a := vdn.Attachment{
		ID: r.ID(), Network: r.Network, Node: r.Node, Container: r.Container, Interface: r.Interface,
		Owner: r.Owner, OwnerUID: r.OwnerUID, Phase: vdn.Leased, Since: now,
	}
	s.mu.Lock() // choosing moves the pools' hands
	if a.Device, err = vdn.ChooseDevice(n, r, s.mem); err == nil {
		a.Addresses, err = vdn.ChooseAddresses(n, s.mem.pools[n.Name], r, s.mem)
	}
	s.mu.Unlock()
	if err != nil {
		return vdn.Lease{}, false, err
	}
	c := change{apply: func(m *memory) { m.attach(a) }}
	c.add(attachments, a.ID, a)
	for _, p := range a.Addresses {
		key := p.Addr().String()
		c.puts = append(c.puts, put{bucket: addresses, key: key, value: []byte(a.ID), fresh: true})
		c.drop(freed, key)
	}
	return vdn.Lease{Attachment: a, Network: n}, true, s.commit(c)
}

func noNetwork(name string) error {
	return vdn.Missing("network "+name, "make it first, or name one that there is")
}

func noAttachment(id string) error {
	return vdn.Missing("attachment "+id, "it was never made, or is deleted: make it anew")
}

func (m *memory) attach(a vdn.Attachment) {
	m.enter(a)
	for _, p := range a.Addresses {
		delete(m.freed, p.Addr())
		m.poolOf(a.Network, p.Addr()).Take(p.Addr())
	}
}

// Detach releases an attachment; one that is not there is none to do.
func (s *Store) Detach(id string) error {
	s.write.Lock()
	defer s.write.Unlock()
	if a, there := s.mem.attachments[id]; there {
		return s.release([]vdn.Attachment{a})
	}
	return s.broken
}

// Collect releases a node's attachments to a network but for those named, and
// gives which.
func (s *Store) Collect(node, network string, valid []string) (released []string, err error) {
	s.write.Lock()
	defer s.write.Unlock()
	var gone []vdn.Attachment
	for _, id := range slices.Sorted(maps.Keys(s.mem.byNode[node])) {
		if a := s.mem.attachments[id]; a.Network == network && !slices.Contains(valid, id) {
			gone = append(gone, a)
			released = append(released, id)
		}
	}
	if len(gone) == 0 {
		return nil, s.broken
	}
	return released, s.release(gone)
}

// release takes attachments away. The write lock is held.
func (s *Store) release(gone []vdn.Attachment) error {
	revision := s.mem.revision + 1
	c := change{}
	for _, a := range gone {
		c.drop(attachments, a.ID)
		for _, p := range a.Addresses {
			key := p.Addr().String()
			c.drop(addresses, key)
			c.puts = append(c.puts, put{bucket: freed, key: key, value: text(revision)})
		}
	}
	var forgotten []netip.Addr
	c.apply = func(m *memory) {
		for _, a := range gone {
			forgotten = append(forgotten, m.detach(a, revision)...)
		}
	}
	if err := s.commit(c); err != nil || len(forgotten) == 0 {
		return err
	}
	return s.forget(forgotten)
}

// detach gives the addresses given back so long ago that they count as new.
func (m *memory) detach(a vdn.Attachment, revision uint64) (forgotten []netip.Addr) {
	m.leave(a)
	for _, p := range a.Addresses {
		m.freed[p.Addr()] = revision
		if pool := m.poolOf(a.Network, p.Addr()); pool != nil {
			forgotten = append(forgotten, pool.Release(p.Addr(), revision)...)
		}
	}
	return forgotten
}

// forget takes addresses out of those given back.
func (s *Store) forget(all []netip.Addr) error {
	c := change{apply: func(m *memory) {
		for _, a := range all {
			delete(m.freed, a)
		}
	}}
	for _, a := range all {
		c.drop(freed, a.String())
	}
	return s.commit(c)
}

// Up notes that an attachment's device is there.
func (s *Store) Up(id string, u vdn.UpReport) (vdn.Attachment, error) {
	if err := u.Validate(id); err != nil {
		return vdn.Attachment{}, err
	}
	s.write.Lock()
	defer s.write.Unlock()
	was, there := s.mem.attachments[id]
	if !there {
		return vdn.Attachment{}, noAttachment(id)
	}
	if err := vdn.MayBeUp(s.mem.networks[was.Network], was, u); err != nil {
		return vdn.Attachment{}, err
	}
	a := was
	a.Device, a.MAC, a.NetNS, a.Phase = u.Device, strings.ToLower(u.MAC), u.NetNS, vdn.Up
	if reflect.DeepEqual(a, was) {
		return a, s.broken
	}
	c := change{apply: func(m *memory) {
		m.leave(was)
		m.enter(a)
	}}
	c.add(attachments, id, a)
	return a, s.commit(c)
}

// Attachment gives one.
func (s *Store) Attachment(id string) (vdn.Attachment, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	a, there := s.mem.attachments[id]
	if !there {
		return a, noAttachment(id)
	}
	return a, nil
}

// Attachments gives those of a network and node, of all where "", by their IDs;
// never nil.
func (s *Store) Attachments(network, node string) []vdn.Attachment {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mem.list(network, node)
}

// list gives what Attachments does.
func (m *memory) list(network, node string) []vdn.Attachment {
	out := []vdn.Attachment{}
	add := func(id string) {
		if a := m.attachments[id]; (network == "" || a.Network == network) && (node == "" || a.Node == node) {
			out = append(out, a)
		}
	}
	switch {
	case node != "":
		eachKey(m.byNode[node], add)
	case network != "":
		eachKey(m.byNetwork[network], add)
	default:
		eachKey(m.attachments, add)
	}
	slices.SortFunc(out, func(a, b vdn.Attachment) int { return strings.Compare(a.ID, b.ID) })
	return out
}

func eachKey[T any](all map[string]T, do func(string)) {
	for k := range all {
		do(k)
	}
}

// Free is how many addresses each network has left, of each subnet.
func (s *Store) Free() map[string][]float64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	free := map[string][]float64{}
	for name, pools := range s.mem.pools {
		for _, p := range pools {
			free[name] = append(free[name], p.Free())
		}
	}
	return free
}
