package store

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/fairlead/fairlead/vdn"
)

// memory is what the disk holds, to look things up in.
type memory struct {
	revision    uint64
	networks    map[string]vdn.Network
	attachments map[string]vdn.Attachment
	numbers     map[string]uint16
	peers       map[string]vdn.PeerView
	nodes       map[string]vdn.Node
	freed       map[netip.Addr]uint64

	// What follows is made of the above.

	pools     map[string][]*vdn.Pool // by network, one a subnet
	byAddress map[netip.Addr]string
	byDevice  map[device]map[string]bool // the attachments on it
	byNetwork map[string]map[string]bool
	byNode    map[string]map[string]bool
}

type device struct{ node, name string }

func text[N int | uint16 | uint64](n N) []byte { return []byte(strconv.FormatUint(uint64(n), 10)) }

// number is 0 for what is none.
func number(b []byte) uint64 {
	n, _ := strconv.ParseUint(string(b), 10, 64)
	return n
}

// read gives what is on disk.
func read(tx *bbolt.Tx) (*memory, error) {
	m := &memory{
		revision: number(tx.Bucket(meta).Get([]byte("revision"))), numbers: map[string]uint16{}, freed: map[netip.Addr]uint64{},
		pools: map[string][]*vdn.Pool{}, byAddress: map[netip.Addr]string{},
		byDevice: map[device]map[string]bool{}, byNetwork: map[string]map[string]bool{}, byNode: map[string]map[string]bool{},
	}
	var err error
	if m.networks, err = readAll[vdn.Network](tx, networks); err != nil {
		return nil, err
	}
	if m.peers, err = readAll[vdn.PeerView](tx, peers); err != nil {
		return nil, err
	}
	if m.nodes, err = readAll[vdn.Node](tx, nodes); err != nil {
		return nil, err
	}
	_ = tx.Bucket(numbers).ForEach(func(k, v []byte) error { // fails only where the function does
		m.numbers[string(k)] = uint16(number(v))
		return nil
	})
	if err := m.readFreed(tx); err != nil {
		return nil, err
	}
	found, err := readAll[vdn.Attachment](tx, attachments)
	if err != nil {
		return nil, err
	}
	m.attachments = make(map[string]vdn.Attachment, len(found))
	for _, a := range found {
		if err := m.unheld(a); err != nil {
			return nil, err
		}
		m.enter(a)
	}
	for _, n := range m.networks {
		m.makePools(n)
	}
	return m, nil
}

func readAll[T any](tx *bbolt.Tx, bucket []byte) (map[string]T, error) {
	all := map[string]T{}
	err := tx.Bucket(bucket).ForEach(func(k, v []byte) error {
		var t T
		if err := json.Unmarshal(v, &t); err != nil {
			return fmt.Errorf("%s, %s: %w", bucket, k, err)
		}
		all[string(k)] = t
		return nil
	})
	return all, err
}

func (m *memory) readFreed(tx *bbolt.Tx) error {
	return tx.Bucket(freed).ForEach(func(k, v []byte) error {
		a, err := netip.ParseAddr(string(k))
		if err != nil {
			return fmt.Errorf("%s: %w", freed, err)
		}
		m.freed[a] = number(v)
		return nil
	})
}

// unheld makes sure that nobody has an attachment's addresses.
func (m *memory) unheld(a vdn.Attachment) error {
	for _, p := range a.Addresses {
		if by := m.byAddress[p.Addr()]; by != "" {
			return fmt.Errorf("attachments %s and %s both have %s", a.ID, by, p.Addr())
		}
	}
	return nil
}

// makePools makes those of a network anew.
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
		m.poolOf(n.Name, a).Release(a, m.freed[a])
	}
}

// freedIn gives the addresses of a network that were given back, the earliest first.
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

// poolOf gives the pool of an address; nil where no subnet has it.
func (m *memory) poolOf(network string, a netip.Addr) *vdn.Pool {
	for i, s := range m.networks[network].Subnets {
		if s.Prefix.Contains(a) && i < len(m.pools[network]) {
			return m.pools[network][i]
		}
	}
	return nil
}

// enter notes an attachment, but not in the pools.
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

// leave takes one out, but not of the pools.
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

// HasAddress says which attachment has an address.
func (m *memory) HasAddress(a netip.Addr) string { return m.byAddress[a] }

// HasDevice says which attachment is on a node's device.
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

// sorted gives the values of a map, never nil, in the order of its keys.
func sorted[T any](all map[string]T) []T {
	out := make([]T, 0, len(all))
	for _, k := range slices.SortedFunc(maps.Keys(all), strings.Compare) {
		out = append(out, all[k])
	}
	return out
}
