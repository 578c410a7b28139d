package store

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/store/kv"
)

// Allow may deny a change, given the current network, which is nil if it does not exist. It
// may be called more than once.
type Allow func(before *vdn.Network) error

// alike reports whether two values are stored identically: an empty list equals no list.
func alike(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// Networks returns all networks by name; never nil.
func (s *Store) Networks() []vdn.Network {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return sorted(s.mem.networks)
}

// Network returns one network.
func (s *Store) Network(name string) (vdn.Network, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n, there := s.mem.networks[name]
	if !there {
		return n, noNetwork(name)
	}
	return n, nil
}

// PutNetwork creates or updates a network.
func (s *Store) PutNetwork(ctx context.Context, n vdn.Network, allow Allow) (created bool, err error) {
	if err := n.Validate(); err != nil {
		return false, err
	}
	err = s.change(ctx, func(m *memory) (e edit, _ error) {
		before, err := m.before(n.Name, allow)
		if err != nil {
			return e, err
		}
		created = before == nil
		if err := n.Fits(before, m.state(s.domain)); err != nil {
			return e, err
		}
		if before != nil {
			if alike(*before, n) {
				return e, nil
			}
			for _, id := range slices.Sorted(maps.Keys(m.byNetwork[n.Name])) {
				if err := n.Keeps(m.attachments[id], *before); err != nil {
					return e, err
				}
			}
		}
		next := maps.Clone(m.networks)
		next[n.Name] = n
		e.add(kv.Networks, n.Name, n)
		return m.rearrange(e, next, m.peers)
	})
	return created && err == nil, err
}

func (m *memory) before(name string, allow Allow) (*vdn.Network, error) {
	var before *vdn.Network
	if n, there := m.networks[name]; there {
		before = &n
	}
	if allow == nil {
		return before, nil
	}
	return before, allow(before)
}

// DeleteNetwork deletes a network without attachments; deleting an absent one succeeds.
func (s *Store) DeleteNetwork(ctx context.Context, name string, allow Allow) error {
	return s.change(ctx, func(m *memory) (e edit, _ error) {
		before, err := m.before(name, allow)
		if err != nil || before == nil {
			return e, err
		}
		if ids := slices.Sorted(maps.Keys(m.byNetwork[name])); len(ids) > 0 {
			return e, vdn.InUse(before.Object(), ids)
		}
		next := maps.Clone(m.networks)
		delete(next, name)
		e.drop(kv.Networks, name)
		e.early = drops(m.freedIn(*before))
		return m.rearrange(e, next, m.peers)
	})
}

// Peers returns all peers by domain; never nil.
func (s *Store) Peers() []vdn.PeerView {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return sorted(s.mem.peers)
}

// Peer returns one peer.
func (s *Store) Peer(domain string) (vdn.PeerView, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	p, there := s.mem.peers[domain]
	if !there {
		return p, vdn.Missing("peer "+domain, "create it first, or use an existing one")
	}
	return p, nil
}

// PutPeer creates or updates a peer; its last offer is retained.
func (s *Store) PutPeer(ctx context.Context, p vdn.Peer) (created bool, err error) {
	if err := p.Validate(); err != nil {
		return false, err
	}
	if p.Domain == s.domain {
		return false, &vdn.Problem{Object: p.Object(), Field: "domain", Text: "is this domain itself: use another"}
	}
	err = s.change(ctx, func(m *memory) (edit, error) {
		view, there := m.peers[p.Domain]
		created = !there
		if there && alike(view.Peer, p) {
			return edit{}, nil
		}
		view.Peer = p
		next := maps.Clone(m.peers)
		next[p.Domain] = view
		return m.rearrange(edit{}, m.networks, next)
	})
	return created && err == nil, err
}

// DeletePeer deletes a peer with everything it offered.
func (s *Store) DeletePeer(ctx context.Context, domain string) error {
	return s.change(ctx, func(m *memory) (e edit, _ error) {
		if _, there := m.peers[domain]; !there {
			return e, nil
		}
		next := maps.Clone(m.peers)
		delete(next, domain)
		e.drop(kv.Peers, domain)
		return m.rearrange(e, m.networks, next)
	})
}

// SetOffers stores the offers of peers and whether they are connected. It ignores unknown
// peers; peers that are not named stay unchanged.
func (s *Store) SetOffers(ctx context.Context, offers []vdn.PeerView) error {
	return s.change(ctx, func(m *memory) (edit, error) {
		next := maps.Clone(m.peers)
		for _, o := range offers {
			if p, there := next[o.Domain]; there {
				o.Peer = p.Peer
				next[o.Domain] = o
			}
		}
		e, err := m.rearrange(edit{}, m.networks, next)
		e.sure = err == nil // the peer's state is reported repeatedly
		return e, err
	})
}

// rearrange decides again which networks of peers are accepted, and adds numbers for all
// accepted ones to an edit. Numbers are valid by themselves: a name keeps its number until
// all have been used.
func (m *memory) rearrange(e edit, own map[string]vdn.Network, with map[string]vdn.PeerView) (edit, error) {
	live := slices.Sorted(maps.Keys(own))
	for _, p := range vdn.Accept(sorted(own), sorted(m.peers), sorted(with)) {
		if was, there := m.peers[p.Domain]; !there || !alike(was, p) {
			e.add(kv.Peers, p.Domain, p)
		}
		for _, n := range p.Networks {
			if n.Refused == "" {
				live = append(live, vdn.FederatedName(p.Domain, n.Name))
			}
		}
	}
	slices.SortFunc(live, strings.Compare)
	given, forgotten, err := vdn.NumberSlices(m.numbers, live, func(name string) bool { return !slices.Contains(live, name) })
	if err != nil {
		return e, err
	}
	for _, name := range forgotten {
		e.drop(kv.Slices, name)
	}
	var numbers []kv.Put
	for name, id := range given {
		numbers = append(numbers, kv.Put{Bucket: kv.Slices, Key: name, Value: kv.Number(id)})
	}
	if len(forgotten) > 0 { // a reused number and its previous name must change together
		e.puts = append(e.puts, numbers...)
	} else {
		e.early = append(e.early, numbers...)
	}
	return e, nil
}

// PutNode stores what a node is, which its plan depends on.
func (s *Store) PutNode(ctx context.Context, n vdn.Node) error {
	return s.change(ctx, func(m *memory) (e edit, _ error) {
		if was, there := m.nodes[n.Name]; there && alike(was, n) {
			return edit{sure: true}, nil // the node reports it again every second
		}
		e.add(kv.Nodes, n.Name, n)
		return e, nil
	})
}

// DeleteNode deletes a node without attachments.
func (s *Store) DeleteNode(ctx context.Context, name string) error {
	return s.change(ctx, func(m *memory) (e edit, _ error) {
		if ids := slices.Sorted(maps.Keys(m.byNode[name])); len(ids) > 0 {
			return e, vdn.InUse("node "+name, ids)
		}
		if _, there := m.nodes[name]; there {
			e.drop(kv.Nodes, name)
		}
		return e, nil
	})
}
