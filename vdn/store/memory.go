package store

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/store/kv"
)

// memory is the backend's content, indexed.
type memory struct {
	revision    uint64
	networks    map[string]vdn.Network
	attachments map[string]vdn.Attachment
	numbers     map[string]uint16
	peers       map[string]vdn.PeerView
	nodes       map[string]vdn.Node
	freed       map[netip.Addr]uint64

	// The following fields are derived from the above.

	pools     map[string][]*vdn.Pool // by network, one per subnet; nil while loading
	byAddress map[netip.Addr]string
	byDevice  map[device]map[string]bool // the IDs of attachments on it
	byNetwork map[string]map[string]bool
	byNode    map[string]map[string]bool
	// forgotten holds addresses released so long ago that they count as unused; they are to
	// be deleted from freed.
	forgotten map[netip.Addr]bool
}

type device struct{ node, name string }

// remember returns the memory of a snapshot.
func remember(s kv.Snapshot) (*memory, error) {
	m := &memory{
		networks: map[string]vdn.Network{}, attachments: map[string]vdn.Attachment{}, numbers: map[string]uint16{},
		peers: map[string]vdn.PeerView{}, nodes: map[string]vdn.Node{}, freed: map[netip.Addr]uint64{},
		byAddress: map[netip.Addr]string{}, byDevice: map[device]map[string]bool{},
		byNetwork: map[string]map[string]bool{}, byNode: map[string]map[string]bool{}, forgotten: map[netip.Addr]bool{},
	}
	if err := m.apply(s.Batch); err != nil {
		return nil, err
	}
	m.pools = map[string][]*vdn.Pool{}
	for _, n := range m.networks {
		m.makePools(n)
	}
	return m, nil
}

// order is the order in which a batch's puts apply, regardless of their order in it:
// addresses are released before others take them, and networks exist first.
var order = []string{kv.Networks, kv.Attachments, kv.Freed, kv.Slices, kv.Peers, kv.Nodes}

// apply applies a batch.
func (m *memory) apply(b kv.Batch) error {
	puts := map[string][]kv.Put{}
	for _, p := range b.Puts {
		puts[p.Bucket] = append(puts[p.Bucket], p)
	}
	for _, bucket := range order {
		slices.SortStableFunc(puts[bucket], func(a, b kv.Put) int { return deletedFirst(a) - deletedFirst(b) })
		for _, p := range puts[bucket] {
			if err := m.put(p); err != nil {
				return fmt.Errorf("%s, %s: %w", p.Bucket, p.Key, err)
			}
		}
	}
	m.revision = b.Revision
	return nil
}

func deletedFirst(p kv.Put) int {
	if p.Value == nil {
		return 0
	}
	return 1
}

// put applies one value.
func (m *memory) put(p kv.Put) error {
	switch p.Bucket {
	case kv.Networks:
		return m.putNetwork(p)
	case kv.Attachments:
		return m.putAttachment(p)
	case kv.Freed:
		return m.putFreed(p)
	case kv.Slices:
		set(m.numbers, p.Key, uint16(kv.ParseNumber(p.Value)), p.Value == nil)
		return nil
	case kv.Peers:
		return decode(m.peers, p)
	case kv.Nodes:
		return decode(m.nodes, p)
	}
	return nil // addresses are known from attachments
}

func set[T any](all map[string]T, key string, value T, gone bool) {
	if gone {
		delete(all, key)
		return
	}
	all[key] = value
}

func decode[T any](all map[string]T, p kv.Put) error {
	var t T
	if p.Value != nil {
		if err := json.Unmarshal(p.Value, &t); err != nil {
			return err
		}
	}
	set(all, p.Key, t, p.Value == nil)
	return nil
}

func (m *memory) putNetwork(p kv.Put) error {
	if err := decode(m.networks, p); err != nil || m.pools == nil {
		return err
	}
	if p.Value == nil {
		delete(m.pools, p.Key)
		return nil
	}
	m.makePools(m.networks[p.Key])
	return nil
}

func (m *memory) putAttachment(p kv.Put) error {
	if was, there := m.attachments[p.Key]; there {
		m.leave(was)
	}
	if p.Value == nil {
		return nil
	}
	var a vdn.Attachment
	if err := json.Unmarshal(p.Value, &a); err != nil {
		return err
	}
	if err := m.unheld(a); err != nil {
		return err
	}
	m.enter(a)
	for _, p := range a.Addresses {
		if pool := m.poolOf(a.Network, p.Addr()); pool != nil {
			pool.Take(p.Addr())
		}
	}
	return nil
}

func (m *memory) putFreed(p kv.Put) error {
	a, err := netip.ParseAddr(p.Key)
	if err != nil {
		return err
	}
	if p.Value == nil {
		delete(m.freed, a)
		delete(m.forgotten, a)
		return nil
	}
	revision := kv.ParseNumber(p.Value)
	m.freed[a] = revision
	if pool := m.poolWith(a); pool != nil {
		for _, old := range pool.Release(a, revision) {
			m.forgotten[old] = true
		}
	}
	return nil
}

// unheld returns an error if another attachment has one of an attachment's addresses.
func (m *memory) unheld(a vdn.Attachment) error {
	for _, p := range a.Addresses {
		if by := m.byAddress[p.Addr()]; by != "" {
			return fmt.Errorf("attachments %s and %s both have %s", a.ID, by, p.Addr())
		}
	}
	return nil
}

// makePools rebuilds the pools of a network.
func (m *memory) makePools(n vdn.Network) {
	pools := make([]*vdn.Pool, len(n.Subnets))
	for i, s := range n.Subnets {
		pools[i] = vdn.NewPool(s)
	}
	m.pools[n.Name] = pools
	for id := range m.byNetwork[n.Name] {
		for _, p := range m.attachments[id].Addresses {
			if pool := m.poolOf(n.Name, p.Addr()); pool != nil {
				pool.Take(p.Addr())
			}
		}
	}
	for _, a := range m.freedIn(n) {
		for _, old := range m.poolOf(n.Name, a).Release(a, m.freed[a]) {
			m.forgotten[old] = true
		}
	}
}

// freedIn returns the released addresses of a network, oldest first.
func (m *memory) freedIn(n vdn.Network) []netip.Addr {
	var all []netip.Addr
	prefixes := n.Prefixes()
	for a := range m.freed {
		if slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) }) {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b netip.Addr) int {
		return cmp.Or(cmp.Compare(m.freed[a], m.freed[b]), a.Compare(b))
	})
	return all
}

// poolOf returns the pool of an address, or nil if it is in no subnet.
func (m *memory) poolOf(network string, a netip.Addr) *vdn.Pool {
	for i, s := range m.networks[network].Subnets {
		if s.CIDR.Contains(a) && i < len(m.pools[network]) {
			return m.pools[network][i]
		}
	}
	return nil
}

// poolWith returns the pool of an address in any network: networks do not overlap.
func (m *memory) poolWith(a netip.Addr) *vdn.Pool {
	for network := range m.pools {
		if pool := m.poolOf(network, a); pool != nil {
			return pool
		}
	}
	return nil
}

// enter indexes an attachment, except in the pools.
func (m *memory) enter(a vdn.Attachment) {
	m.attachments[a.ID] = a
	for _, p := range a.Addresses {
		m.byAddress[p.Addr()] = a.ID
	}
	include(m.byNetwork, a.Network, a.ID)
	include(m.byNode, a.Node, a.ID)
	if a.Device != "" {
		include(m.byDevice, device{a.Node, a.Device}, a.ID)
	}
}

// leave removes an attachment from the indexes, except from the pools.
func (m *memory) leave(a vdn.Attachment) {
	delete(m.attachments, a.ID)
	for _, p := range a.Addresses {
		delete(m.byAddress, p.Addr())
	}
	exclude(m.byNetwork, a.Network, a.ID)
	exclude(m.byNode, a.Node, a.ID)
	exclude(m.byDevice, device{a.Node, a.Device}, a.ID)
}

func include[K comparable](sets map[K]map[string]bool, key K, id string) {
	if sets[key] == nil {
		sets[key] = map[string]bool{}
	}
	sets[key][id] = true
}

func exclude[K comparable](sets map[K]map[string]bool, key K, id string) {
	delete(sets[key], id)
	if len(sets[key]) == 0 {
		delete(sets, key)
	}
}

// HasAddress returns the attachment that has an address.
func (m *memory) HasAddress(a netip.Addr) string { return m.byAddress[a] }

// HasDevice returns an attachment on a node's device.
func (m *memory) HasDevice(node, name string) string {
	ids := slices.Sorted(maps.Keys(m.byDevice[device{node, name}]))
	if len(ids) == 0 {
		return ""
	}
	return ids[0]
}

func (m *memory) state(domain string) vdn.State {
	return vdn.State{
		Domain: domain, Revision: m.revision, Slices: maps.Clone(m.numbers),
		Networks: sorted(m.networks), Nodes: sorted(m.nodes), Peers: sorted(m.peers),
	}
}

// list implements Store.Attachments.
func (m *memory) list(network, node string) []vdn.Attachment {
	ids := maps.Keys(m.attachments)
	switch {
	case node != "":
		ids = maps.Keys(m.byNode[node])
	case network != "":
		ids = maps.Keys(m.byNetwork[network])
	}
	out := []vdn.Attachment{}
	for id := range ids {
		if a := m.attachments[id]; (network == "" || a.Network == network) && (node == "" || a.Node == node) {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b vdn.Attachment) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// sorted returns the values of a map in the order of its keys; never nil.
func sorted[T any](all map[string]T) []T {
	out := make([]T, 0, len(all))
	for _, k := range slices.SortedFunc(maps.Keys(all), strings.Compare) {
		out = append(out, all[k])
	}
	return out
}
