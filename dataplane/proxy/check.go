package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/cilium/ebpf"
)

// checkLot is the number of entries that Check compares before Apply gets a turn.
const checkLot = 1024

// survey is a comparison of the kernel with what is programmed, between calls of Apply.
type survey struct {
	cursor ebpf.MapBatchCursor
	keys   []proxyServiceKey
	values []proxyService
	// seen has the ids that were found, or that Apply has written or removed since.
	seen []bool
	left int // entries from the beginning that were not
}

// mark records that an entry was found, or that Apply has written or removed it. isNew means
// that it was not programmed before.
func (s *survey) mark(id uint32, isNew bool) {
	if s == nil || s.seen[id] {
		return
	}
	if s.seen[id] = true; !isNew {
		s.left--
	}
}

// Check compares the kernel with what is programmed, and returns an error that names a
// difference, nil without one. Apply may be called meanwhile, and waits for a small part of
// it. After an error, Keys and Apply repair everything.
func (d *DataPlane) Check(ctx context.Context) error {
	err := d.survey(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.surveyed, d.stale = nil, d.stale || err != nil && ctx.Err() == nil
	return err
}

func (d *DataPlane) survey(ctx context.Context) error {
	s := &survey{keys: make([]proxyServiceKey, checkLot), values: make([]proxyService, checkLot)}
	if err := d.begin(s); err != nil {
		return err
	}
	for done := false; !done; {
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		if done, err = d.checkEntries(s); err != nil {
			return err
		}
	}
	return d.checkRest(s)
}

// errReread means that Apply had to read the kernel again. What another process had changed
// before counts as programmed since.
var errReread = errors.New("the state was read again after a failure")

func (d *DataPlane) begin(s *survey) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	s.seen, s.left = make([]bool, len(d.connections)), len(d.programmed)
	d.surveyed = s
	return d.continues(s)
}

// checkEntries compares some entries of the map. done means that these were the last.
func (d *DataPlane) checkEntries(s *survey) (done bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.continues(s); err != nil {
		return false, err
	}
	n, err := d.kernel.Services.BatchLookup(&s.cursor, s.keys, s.values, nil)
	if done = errors.Is(err, ebpf.ErrKeyNotExist); err != nil && !done {
		return false, fmt.Errorf("read frontends: %w", err)
	}
	for i, v := range s.values[:n] {
		is, known := d.programmed[s.keys[i]]
		switch {
		case !known:
			return false, fmt.Errorf("frontend %s was added by another process", fromKey(s.keys[i]))
		case is != v:
			return false, fmt.Errorf("frontend %s was changed by another process", fromKey(s.keys[i]))
		case !d.runs.intact(v.Inside) || !d.runs.intact(v.Outside):
			return false, fmt.Errorf("endpoints of frontend %s were changed by another process", fromKey(s.keys[i]))
		}
		s.mark(v.Id, false)
	}
	return done, nil
}

func (d *DataPlane) continues(s *survey) error {
	switch {
	case d.closed:
		return ErrClosed
	case d.stale || d.reread || d.surveyed != s:
		return errReread
	}
	return nil
}

// checkRest compares what is not in the map of frontends.
func (d *DataPlane) checkRest(s *survey) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.continues(s); err != nil {
		return err
	}
	if s.left > 0 {
		return fmt.Errorf("%d frontends were removed by another process", s.left)
	}
	if err := d.checkRanges(); err != nil {
		return err
	}
	return d.checkNodes()
}

// checkRanges compares the source ranges, which few frontends have, in one go: a map of
// this type cannot be read while it is changed.
func (d *DataPlane) checkRanges() error {
	wanted := map[proxySourceRangeKey]bool{}
	for id, list := range d.allowed {
		for _, p := range list {
			wanted[toRangeKey(id, p)] = true
		}
	}
	found, err := rangeKeys(d.kernel.SourceRanges)
	if err != nil {
		return err
	}
	if len(found) != len(wanted) || slices.ContainsFunc(found, func(k proxySourceRangeKey) bool { return !wanted[k] }) {
		return fmt.Errorf("source ranges were changed by another process: %d instead of %d, or others", len(found), len(wanted))
	}
	return nil
}

// checkNodes compares the addresses of node ports, which are few.
func (d *DataPlane) checkNodes() error {
	var a proxyAddr
	var yes uint8
	n := 0
	all := d.kernel.NodeAddresses.Iterate()
	for ; all.Next(&a, &yes); n++ {
		if !d.nodes[a] {
			return fmt.Errorf("node address %s was added by another process", fromAddr(a))
		}
	}
	if err := all.Err(); err != nil {
		return fmt.Errorf("read node addresses: %w", err)
	}
	if n < len(d.nodes) {
		return fmt.Errorf("%d node addresses were removed by another process", len(d.nodes)-n)
	}
	return nil
}

// intact reports whether a run in use has the endpoints that were written.
func (r *runs) intact(run proxyRun) bool {
	if run.length() == 0 {
		return true
	}
	now := targetBytes(r.at(run))
	first, known := r.byHash[maphash.Bytes(r.seed, now)]
	return known && (first == run.First || bytes.Equal(now, targetBytes(r.memory[first:][:r.users[first].length])))
}
