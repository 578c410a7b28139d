package store

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/vdn"
)

// Allow may refuse a change by what is there before; nil where nothing is.
type Allow func(before *vdn.Network) error

// Networks gives all by name; never nil.
func (s *Store) Networks() []vdn.Network {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return sorted(s.mem.networks)
}

// Network gives one.
func (s *Store) Network(name string) (vdn.Network, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n, there := s.mem.networks[name]
	if !there {
		return n, noNetwork(name)
	}
	return n, nil
}

// PutNetwork makes or changes one.
func (s *Store) PutNetwork(n vdn.Network, allow Allow) (created bool, err error) {
	if err := n.Validate(); err != nil {
		return false, err
	}
	s.write.Lock()
	defer s.write.Unlock()
	before, err := s.before(n.Name, allow)
	if err != nil {
		return false, err
	}
	if err := n.Fits(before, s.mem.state(s.domain)); err != nil {
		return false, err
	}
	if before != nil {
		if reflect.DeepEqual(*before, n) {
			return false, s.broken
		}
		for _, id := range slices.Sorted(maps.Keys(s.mem.byNetwork[n.Name])) {
			if err := n.Keeps(s.mem.attachments[id], *before); err != nil {
				return false, err
			}
		}
	}
	next := maps.Clone(s.mem.networks)
	next[n.Name] = n
	c := change{}
	c.add(networks, n.Name, n)
	return before == nil, s.rearrange(c, next, s.mem.peers, func(m *memory) { m.makePools(n) })
}

func (s *Store) before(name string, allow Allow) (*vdn.Network, error) {
	var before *vdn.Network
	if n, there := s.mem.networks[name]; there {
		before = &n
	}
	if allow == nil {
		return before, nil
	}
	return before, allow(before)
}

// DeleteNetwork takes one away that has no attachments; one that is not there is
// none to do.
func (s *Store) DeleteNetwork(name string, allow Allow) error {
	s.write.Lock()
	defer s.write.Unlock()
	before, err := s.before(name, allow)
	if err != nil || before == nil {
		return err
	}
	if ids := slices.Sorted(maps.Keys(s.mem.byNetwork[name])); len(ids) > 0 {
		return vdn.InUse(before.Object(), ids)
	}
	next := maps.Clone(s.mem.networks)
	delete(next, name)
	c := change{}
	c.drop(networks, name)
	old := s.mem.freedIn(*before)
	for _, a := range old {
		c.drop(freed, a.String())
	}
	return s.rearrange(c, next, s.mem.peers, func(m *memory) {
		delete(m.pools, name)
		for _, a := range old {
			delete(m.freed, a)
		}
	})
}

// Peers gives all by domain; never nil.
func (s *Store) Peers() []vdn.PeerView {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return sorted(s.mem.peers)
}

// Peer gives one.
func (s *Store) Peer(domain string) (vdn.PeerView, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	p, there := s.mem.peers[domain]
	if !there {
		return p, vdn.Missing("peer "+domain, "make it first, or name one that there is")
	}
	return p, nil
}

// PutPeer makes or changes one; what it offered stays.
func (s *Store) PutPeer(p vdn.Peer) (created bool, err error) {
	if err := p.Validate(); err != nil {
		return false, err
	}
	if p.Domain == s.domain {
		return false, &vdn.Problem{Object: p.Object(), Field: "domain", Text: "it is this domain itself: name another"}
	}
	s.write.Lock()
	defer s.write.Unlock()
	view, there := s.mem.peers[p.Domain]
	if there && reflect.DeepEqual(view.Peer, p) {
		return false, s.broken
	}
	view.Peer = p
	next := maps.Clone(s.mem.peers)
	next[p.Domain] = view
	return !there, s.rearrange(change{}, s.mem.networks, next, nil)
}

// DeletePeer takes one away with all it offered.
func (s *Store) DeletePeer(domain string) error {
	s.write.Lock()
	defer s.write.Unlock()
	if _, there := s.mem.peers[domain]; !there {
		return s.broken
	}
	next := maps.Clone(s.mem.peers)
	delete(next, domain)
	c := change{}
	c.drop(peers, domain)
	return s.rearrange(c, s.mem.networks, next, nil)
}

// SetOffers notes what the peers offer, and whether they are connected. Of a peer
// that is not there, nothing counts; one that is not named stays as it is.
func (s *Store) SetOffers(offers []vdn.PeerView) error {
	s.write.Lock()
	defer s.write.Unlock()
	next := maps.Clone(s.mem.peers)
	for _, o := range offers {
		if p, there := next[o.Domain]; there {
			o.Peer = p.Peer
			next[o.Domain] = o
		}
	}
	return s.rearrange(change{}, s.mem.networks, next, nil)
}

// rearrange judges anew which of the peers' networks count, gives all that do
// their numbers, and commits all of that with a change. The write lock is held.
func (s *Store) rearrange(c change, own map[string]vdn.Network, with map[string]vdn.PeerView, more func(*memory)) error {
	accepted := map[string]vdn.PeerView{}
	for _, p := range vdn.Accept(sorted(own), sorted(s.mem.peers), sorted(with)) {
		accepted[p.Domain] = p
		if was, there := s.mem.peers[p.Domain]; !there || !reflect.DeepEqual(was, p) {
			c.add(peers, p.Domain, p)
		}
	}
	live := slices.Sorted(maps.Keys(own))
	for domain, p := range accepted {
		for _, n := range p.Networks {
			if n.Refused == "" {
				live = append(live, vdn.FederatedName(domain, n.Name))
			}
		}
	}
	slices.SortFunc(live, strings.Compare)
	given, forgotten, err := vdn.NumberSlices(s.mem.numbers, live, func(name string) bool { return !slices.Contains(live, name) })
	if err != nil {
		return err
	}
	for _, name := range forgotten {
		c.drop(numbers, name)
	}
	for name, id := range given {
		c.puts = append(c.puts, put{bucket: numbers, key: name, value: text(id)})
	}
	if len(c.puts) == 0 {
		return s.broken // nothing is other than it was
	}
	c.apply = func(m *memory) {
		m.networks, m.peers = own, accepted
		for _, name := range forgotten {
			delete(m.numbers, name)
		}
		maps.Copy(m.numbers, given)
		if more != nil {
			more(m)
		}
	}
	return s.commit(c)
}

// PutNode notes what a node is, which its plan depends on.
func (s *Store) PutNode(n vdn.Node) error {
	s.write.Lock()
	defer s.write.Unlock()
	if was, there := s.mem.nodes[n.Name]; there && reflect.DeepEqual(was, n) {
		return s.broken
	}
	c := change{apply: func(m *memory) { m.nodes[n.Name] = n }}
	c.add(nodes, n.Name, n)
	return s.commit(c)
}

// DeleteNode forgets one that has no attachments.
func (s *Store) DeleteNode(name string) error {
	s.write.Lock()
	defer s.write.Unlock()
	if ids := slices.Sorted(maps.Keys(s.mem.byNode[name])); len(ids) > 0 {
		return vdn.InUse("node "+name, ids)
	}
	if _, there := s.mem.nodes[name]; !there {
		return s.broken
	}
	c := change{apply: func(m *memory) { delete(m.nodes, name) }}
	c.drop(nodes, name)
	return s.commit(c)
}
