package proxy

import (
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/core/proxy"
)

// read makes the agent's state match the kernel's: what is programmed, and thus what is
// free. Invalid entries are removed.
func (d *DataPlane) read() error {
	d.stale, d.reread, d.surveyed = true, true, nil // stale until it is done
	d.programmed, d.nodes = map[proxyServiceKey]proxyService{}, map[proxyAddr]bool{}
	d.runs.reset()
	ids := make([]bool, len(d.connections))
	for e, err := range services(d.kernel.Services) {
		if err != nil {
			return err
		}
		if err := d.adopt(e, ids); err != nil {
			d.config.Log.Warn("proxy: removed a damaged frontend", "frontend", fromKey(e.key), "error", err)
			if err := d.kernel.Services.Delete(e.key); err != nil {
				return err
			}
			continue
		}
		d.programmed[e.key] = e.value
	}
	var taken []extent
	for id, is := range ids {
		if is {
			taken = append(taken, extent{uint32(id), 1})
		}
	}
	d.ids = newSpace(uint32(len(ids)), taken)
	if err := d.runs.settle(); err != nil {
		return fmt.Errorf("%s is damaged: remove it (which interrupts service) and start again: %w", d.pins.Path(""), err)
	}
	if err := d.readRanges(); err != nil {
		return err
	}
	var a proxyAddr
	var yes uint8
	for all := d.kernel.NodeAddresses.Iterate(); all.Next(&a, &yes); {
		d.nodes[a] = true
	}
	if len(d.programmed) > 0 { // what is free now may have been released just before
		if err := d.waiter.wait(); err != nil {
			return err
		}
	}
	d.stale, d.wrote = false, false
	return nil
}

// adopt takes over an entry completely, or not at all.
func (d *DataPlane) adopt(e entry, ids []bool) error {
	id := e.value.Id
	switch {
	case e.value.Check != checkOf(e.key, e.value) || id >= uint32(len(ids)):
		return errors.New("inconsistent entry")
	case ids[id]:
		return fmt.Errorf("duplicate ID %d", id)
	}
	if err := d.runs.adopt(e.value.Inside, e.value.Outside); err != nil {
		return err
	}
	ids[id] = true
	return nil
}

// readRanges reads the source ranges, and removes those without a frontend.
func (d *DataPlane) readRanges() error {
	v4 := map[uint32]bool{}
	for k, s := range d.programmed {
		if s.Flags&proxyServiceFlagsSERVICE_ALLOW != 0 {
			v4[s.Id] = fromAddr(k.Addr).Is4()
		}
	}
	all, err := rangeKeys(d.kernel.SourceRanges)
	if err != nil {
		return err
	}
	d.allowed = map[uint32][]netip.Prefix{}
	for _, k := range all {
		is4, wanted := v4[k.Id]
		if wanted {
			d.allowed[k.Id] = append(d.allowed[k.Id], fromRangeKey(k, is4))
			continue
		}
		if err := d.kernel.SourceRanges.Delete(k); err != nil {
			return fmt.Errorf("delete a source range: %w", err)
		}
	}
	for _, list := range d.allowed {
		slices.SortFunc(list, comparePrefixes)
	}
	return nil
}

func rangeKeys(m *ebpf.Map) (keys []proxySourceRangeKey, err error) {
	var k proxySourceRangeKey
	var yes uint8
	all := m.Iterate()
	for all.Next(&k, &yes) {
		keys = append(keys, k)
	}
	if err := all.Err(); err != nil {
		return nil, fmt.Errorf("read source ranges: %w", err)
	}
	return keys, nil
}

// entry is one of the map services.
type entry struct {
	key   proxyServiceKey
	value proxyService
}

// services returns all entries of the map, in few calls.
func services(m *ebpf.Map) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		keys, values := make([]proxyServiceKey, lot), make([]proxyService, lot)
		var cursor ebpf.MapBatchCursor
		for {
			n, err := m.BatchLookup(&cursor, keys, values, nil)
			end := errors.Is(err, ebpf.ErrKeyNotExist)
			if err != nil && !end {
				yield(entry{}, fmt.Errorf("read frontends: %w", err))
				return
			}
			for i := range n {
				if !yield(entry{keys[i], values[i]}, nil) {
					return
				}
			}
			if end {
				return
			}
		}
	}
}

// Held is a frontend as programmed in the kernel.
type Held struct {
	proxy.Frontend
	// Connections counts the connections opened to it since it was programmed, by
	// sockets and by packets.
	Connections uint64
}

// List returns the frontends programmed by the data plane with this PinDir, in no order;
// also while none runs, or another process has it.
func List(pinDir string) iter.Seq2[Held, error] {
	return func(yield func(Held, error) bool) {
		r, err := OpenReader(pinDir)
		if err != nil {
			yield(Held{}, err)
			return
		}
		defer r.Close()
		r.list(yield)
	}
}

// reader reads the programmed state.
type reader struct {
	services, ranges *ebpf.Map
	targets          []proxyTarget
	connections      []uint64
}

// Reader reads the state of a data plane, whether or not that runs.
type Reader struct {
	reader
	maps []*ebpf.Map
}

// OpenReader opens what is pinned below a PinDir; os.ErrNotExist, wrapped, if nothing is.
func OpenReader(pinDir string) (*Reader, error) {
	r := &Reader{}
	if err := r.open(Folder(pinDir)); err != nil {
		return nil, errors.Join(fmt.Errorf("proxy: %w", err), r.Close())
	}
	return r, nil
}

func (r *Reader) open(folder string) (err error) {
	load := func(name string, only ebpf.LoadPinOptions) (m *ebpf.Map) {
		if err != nil {
			return nil
		}
		if m, err = ebpf.LoadPinnedMap(filepath.Join(folder, name), &only); err == nil {
			r.maps = append(r.maps, m)
		}
		return m
	}
	reads := ebpf.LoadPinOptions{ReadOnly: true}
	r.services, r.ranges = load(proxyMapServices, reads), load(proxyMapSourceRanges, reads)
	// The kernel does not map the memory of maps opened read-only.
	targets, connections := load(proxyMapTargets, ebpf.LoadPinOptions{}), load(proxyMapConnections, ebpf.LoadPinOptions{})
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("no frontends are programmed: %w", err)
	}
	if err == nil {
		r.targets, err = mapped[proxyTarget](targets, readOnly)
	}
	if err == nil {
		r.connections, err = mapped[uint64](connections, readOnly)
	}
	return err
}

// Close closes the reader.
func (r *Reader) Close() error {
	errs := []error{unmap(r.targets), unmap(r.connections)}
	for _, m := range r.maps {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

// List returns the frontends, in no order.
func (r *Reader) List() iter.Seq2[Held, error] { return r.list }

// Get returns the frontend of a key, without its source ranges, if it is programmed.
func (r *Reader) Get(k proxy.Key) (h Held, found bool, err error) {
	e := entry{key: toKey(k)}
	if err = r.services.Lookup(e.key, &e.value); err == nil {
		h, err = r.programmed(e, nil)
	}
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return h, false, nil
	}
	return h, err == nil, err
}

// Entries returns the number of programmed frontends, and a checksum of their entries:
// equal results of two calls mean equal entries.
func (r *Reader) Entries() (n int, sum uint64, err error) {
	for e, err := range services(r.services) {
		if err != nil {
			return 0, 0, fmt.Errorf("proxy: %w", err)
		}
		n++
		sum += maphash.Comparable(sumSeed, e)
	}
	return n, sum, nil
}

var sumSeed = maphash.MakeSeed()

func (r reader) list(yield func(Held, error) bool) {
	all, err := rangeKeys(r.ranges)
	if err != nil {
		yield(Held{}, fmt.Errorf("proxy: %w", err))
		return
	}
	ranges := map[uint32][]proxySourceRangeKey{}
	for _, k := range all {
		ranges[k.Id] = append(ranges[k.Id], k)
	}
	for e, err := range services(r.services) {
		var h Held
		if err == nil {
			h, err = r.programmed(e, ranges[e.value.Id])
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			continue // removed in the meantime
		}
		if err != nil {
			err = fmt.Errorf("proxy: %w", err)
		}
		if !yield(h, err) || err != nil {
			return
		}
	}
}

// programmed converts an entry to a frontend. Its endpoints are valid if it still refers to
// them after they have been read.
func (r reader) programmed(e entry, ranges []proxySourceRangeKey) (h Held, err error) {
	for {
		s := e.value
		h = Held{Frontend: proxy.Frontend{
			Key: fromKey(e.key), Kind: proxy.Kind(s.Kind), Affinity: time.Duration(s.Affinity) * time.Second,
			Closed: s.Flags&proxyServiceFlagsSERVICE_CLOSED != 0,
		}}
		if h.Inside, err = r.choice(s.Inside, s.InsideEmpty); err != nil {
			return h, err
		}
		if h.Outside, err = r.choice(s.Outside, s.OutsideEmpty); err != nil {
			return h, err
		}
		if s.Id < uint32(len(r.connections)) {
			h.Connections = r.connections[s.Id]
		}
		for _, k := range ranges {
			h.Allow = append(h.Allow, fromRangeKey(k, h.Addr.Is4()))
		}
		slices.SortFunc(h.Allow, comparePrefixes)
		if err = r.services.Lookup(e.key, &e.value); err != nil || e.value == s {
			return h, err
		}
	}
}

func (r reader) choice(run proxyRun, empty proxyServiceEmpty) (proxy.Choice, error) {
	if uint64(run.First)+uint64(run.length()) > uint64(len(r.targets)) {
		return proxy.Choice{}, fmt.Errorf("endpoints %d of %d: the map is damaged", run.First, len(r.targets))
	}
	all := r.targets[run.First:][:run.length()]
	return proxy.Choice{Targets: fromTargets(all[:run.Count]), Keeps: fromTargets(all[run.Count:]), Empty: proxy.Empty(empty)}, nil
}
