package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/store/kv"
)

// Attach creates the attachment of a request. An existing one of the same container and
// interface is returned again (created is false). now is in seconds since 1970. If ctx ends
// before the change starts, nothing is leased, because the client may have asked to release
// it meanwhile.
func (s *Store) Attach(ctx context.Context, r vdn.AttachmentRequest, now int64) (lease vdn.Lease, created bool, err error) {
	if err := r.Validate(); err != nil {
		return vdn.Lease{}, false, err
	}
	err = s.change(ctx, func(m *memory) (e edit, err error) {
		n, there := m.networks[r.Network]
		if !there {
			return e, noNetwork(r.Network)
		}
		lease, created = vdn.Lease{Network: n}, false
		if a, again := m.attachments[r.ID()]; again {
			lease.Attachment = a
			return e, vdn.SameRequest(a, r)
		}
		created = true
		if old, there := m.replaced(r); there {
			lease.Attachment, e, err = replace(old, r, now)
			return e, err
		}
		lease.Attachment, err = m.choose(n, r, now)
		if err != nil {
			return e, err
		}
		e.add(kv.Attachments, r.ID(), lease.Attachment)
		for _, p := range lease.Attachment.Addresses {
			key := p.Addr().String()
			e.puts = append(e.puts, kv.Put{Bucket: kv.Addresses, Key: key, Value: []byte(r.ID()), Fresh: true})
			e.drop(kv.Freed, key)
		}
		return e, nil
	})
	if err != nil {
		return vdn.Lease{}, false, named(r.ID(), err)
	}
	return lease, created, nil
}

// named adds the attachment's name to an error of the backend.
func named(id string, err error) error {
	if !errors.Is(err, kv.ErrUnavailable) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("attachment %s: %w", id, err)
}

// replaced returns the attachment that a request continues.
func (m *memory) replaced(r vdn.AttachmentRequest) (a vdn.Attachment, there bool) {
	for _, id := range r.Replaces {
		if a, there = m.attachments[id]; there {
			return a, true
		}
	}
	return a, false
}

// replace transfers what an attachment has to the one that continues it.
func replace(old vdn.Attachment, r vdn.AttachmentRequest, now int64) (a vdn.Attachment, e edit, err error) {
	if err := vdn.MayReplace(old, r); err != nil {
		return a, e, err
	}
	a = old
	a.ID, a.Container, a.Owner, a.Phase, a.MAC, a.NetNS, a.Since = r.ID(), r.Container, r.Owner, vdn.Leased, "", "", now
	e.drop(kv.Attachments, old.ID)
	e.add(kv.Attachments, a.ID, a)
	for _, p := range a.Addresses {
		e.puts = append(e.puts, kv.Put{Bucket: kv.Addresses, Key: p.Addr().String(), Value: []byte(a.ID)})
	}
	return a, e, nil
}

// choose chooses the device and addresses for a request.
func (m *memory) choose(n vdn.Network, r vdn.AttachmentRequest, now int64) (a vdn.Attachment, err error) {
	a = vdn.Attachment{
		ID: r.ID(), Network: r.Network, Node: r.Node, Container: r.Container, Interface: r.Interface,
		Owner: r.Owner, OwnerUID: r.OwnerUID, Phase: vdn.Leased, Since: now,
	}
	if a.Device, err = vdn.ChooseDevice(n, r, m); err == nil {
		a.Addresses, err = vdn.ChooseAddresses(n, m.pools[n.Name], r, m)
	}
	return a, err
}

func noNetwork(name string) error {
	return vdn.Missing("network "+name, "create it first, or use an existing one")
}

func noAttachment(id string) error {
	return vdn.Missing("attachment "+id, "was deleted, or never existed: create it again")
}

// MayTouch may deny a change of an attachment. It may be called more than once.
type MayTouch func(a vdn.Attachment) error

// Detach releases an attachment; releasing an absent one succeeds. An earlier request for
// it that is still in progress fails.
func (s *Store) Detach(ctx context.Context, id string, may ...MayTouch) error {
	err := s.change(ctx, func(m *memory) (edit, error) {
		a, there := m.attachments[id]
		if !there {
			return edit{overtake: true}, nil
		}
		if err := askAll(may, a); err != nil {
			return edit{}, err
		}
		return m.release([]vdn.Attachment{a}), nil
	})
	if err != nil {
		return named(id, err)
	}
	return s.forget(ctx)
}

func askAll(may []MayTouch, a vdn.Attachment) error {
	for _, ask := range may {
		if err := ask(a); err != nil {
			return err
		}
	}
	return nil
}

// releasedAtOnce limits how many attachments one batch releases, because backends limit the
// values in a batch.
const releasedAtOnce = 16

// Collect releases a node's attachments to a network except the valid ones. It returns
// those released, even if it fails in between.
func (s *Store) Collect(ctx context.Context, node, network string, valid []string) (released []string, err error) {
	for {
		var gone []vdn.Attachment
		// An attempt with an unknown outcome may have been committed. The next attempt does
		// not see what it released, so remember it here.
		tried := map[string]bool{}
		err := s.change(ctx, func(m *memory) (edit, error) {
			gone = nil
			for _, id := range slices.Sorted(maps.Keys(m.byNode[node])) {
				a := m.attachments[id]
				if a.Network == network && !slices.Contains(valid, id) && len(gone) < releasedAtOnce {
					gone = append(gone, a)
					tried[id] = true
				}
			}
			return m.release(gone), nil
		})
		if err != nil {
			return released, err
		}
		for _, id := range slices.Sorted(maps.Keys(tried)) {
			if !slices.Contains(released, id) && !s.has(id) {
				released = append(released, id)
			}
		}
		if len(gone) < releasedAtOnce {
			return released, s.forget(ctx)
		}
	}
}

// has reports whether an attachment exists.
func (s *Store) has(id string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, there := s.mem.attachments[id]
	return there
}

// release returns the edit that deletes attachments.
func (m *memory) release(gone []vdn.Attachment) (e edit) {
	revision := m.revision + 1
	for _, a := range gone {
		e.drop(kv.Attachments, a.ID)
		for _, p := range a.Addresses {
			key := p.Addr().String()
			e.drop(kv.Addresses, key)
			e.puts = append(e.puts, kv.Put{Bucket: kv.Freed, Key: key, Value: kv.Number(revision)})
		}
	}
	return e
}

// forget removes the oldest released addresses from storage if there are too many.
func (s *Store) forget(ctx context.Context) error {
	s.mu.RLock()
	some := len(s.mem.forgotten) > 0
	s.mu.RUnlock()
	if !some {
		return nil
	}
	return s.change(ctx, func(m *memory) (e edit, _ error) {
		e.early = drops(slices.SortedFunc(maps.Keys(m.forgotten), netip.Addr.Compare))
		return e, nil
	})
}

// drops returns puts that delete addresses from kv.Freed.
func drops(all []netip.Addr) (puts []kv.Put) {
	for _, a := range all {
		puts = append(puts, kv.Put{Bucket: kv.Freed, Key: a.String()})
	}
	return puts
}

// Up records that an attachment's device exists.
func (s *Store) Up(ctx context.Context, id string, u vdn.UpReport, may ...MayTouch) (a vdn.Attachment, err error) {
	if err := u.Validate(id); err != nil {
		return vdn.Attachment{}, err
	}
	err = s.change(ctx, func(m *memory) (e edit, _ error) {
		was, there := m.attachments[id]
		if !there {
			return e, noAttachment(id)
		}
		if err := askAll(may, was); err != nil {
			return e, err
		}
		if err := vdn.MayBeUp(m.networks[was.Network], was, u); err != nil {
			return e, err
		}
		a = was
		a.Device, a.MAC, a.NetNS, a.Phase = u.Device, strings.ToLower(u.MAC), u.NetNS, vdn.Up
		if !alike(a, was) {
			e.add(kv.Attachments, id, a)
		}
		return e, nil
	})
	if err != nil {
		return vdn.Attachment{}, named(id, err)
	}
	return a, nil
}

// Attachment returns one attachment.
func (s *Store) Attachment(id string) (vdn.Attachment, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	a, there := s.mem.attachments[id]
	if !there {
		return a, noAttachment(id)
	}
	return a, nil
}

// Attachments returns the attachments of a network and node, sorted by ID; "" matches all.
// Never nil.
func (s *Store) Attachments(network, node string) []vdn.Attachment {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mem.list(network, node)
}

// Free returns the number of free addresses of each network, by subnet.
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
