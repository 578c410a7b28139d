// Package store keeps the state of a domain's networks in one file (bbolt): what
// is there is on disk before anybody is told of it, and survives the process at
// any moment. All changes are serial; what is read comes from memory.
//
// What it takes and gives is shared: nobody may change it.
package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/fairlead/fairlead/vdn"
)

// File is the name of the store's file in its folder.
const File = "vdn.db"

// lockWait is how long a predecessor has to end.
const lockWait = 2 * time.Second

// Store is an open store. Its methods may be called concurrently.
type Store struct {
	db     *bbolt.DB
	domain string
	// write is held by who changes something, all the while it does.
	write sync.Mutex
	// mu guards what follows, and is held but for moments.
	mu      sync.RWMutex
	mem     *memory
	changed chan struct{} // closed at each change
	broken  error         // why nothing more is taken
}

// Open opens the store in a folder, which it makes where there is none.
func Open(folder, domain string) (*Store, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	path := filepath.Join(folder, File)
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockWait})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("store %s: another controller has it open: stop that, or use a folder of its own", path)
	} else if err != nil {
		return nil, fmt.Errorf("store %s: %w: put a copy of it back, or begin anew in another folder", path, err)
	}
	s := &Store{db: db, domain: domain, changed: make(chan struct{})}
	if err := db.Update(makeBuckets); err != nil {
		return nil, errors.Join(fmt.Errorf("store %s: %w", path, err), db.Close())
	}
	if err := s.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("store %s: %w", path, err), db.Close())
	}
	return s, nil
}

// Close ends it; changes under way are done first.
func (s *Store) Close() error {
	s.write.Lock()
	defer s.write.Unlock()
	s.mu.Lock()
	s.broken = errors.New("the store is closed: ask again once the controller is back")
	s.mu.Unlock()
	return s.db.Close()
}

// The buckets; values are JSON but for those of addresses, freed, slices and meta.
var (
	networks    = []byte("networks")    // by name
	attachments = []byte("attachments") // by ID
	addresses   = []byte("addresses")   // who has it, by address
	freed       = []byte("freed")       // at which revision, by address
	numbers     = []byte("slices")      // by name
	peers       = []byte("peers")       // vdn.PeerView, by domain
	nodes       = []byte("nodes")       // vdn.Node, by name
	meta        = []byte("meta")        // revision, format
)

// format is the layout that this code knows.
const format = 1

func makeBuckets(tx *bbolt.Tx) error {
	for _, name := range [][]byte{networks, attachments, addresses, freed, numbers, peers, nodes, meta} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	m := tx.Bucket(meta)
	switch got := number(m.Get([]byte("format"))); got {
	case 0:
		return m.Put([]byte("format"), text(format))
	case format:
		return nil
	default:
		return fmt.Errorf("it is of format %d, this program knows %d: run the newer program", got, format)
	}
}

// put is one value to be written; taken away where Value is nil.
type put struct {
	bucket []byte
	key    string
	value  []byte
	// fresh says that nothing may be there yet.
	fresh bool
}

func (p put) do(tx *bbolt.Tx) error {
	b, key := tx.Bucket(p.bucket), []byte(p.key)
	if p.value == nil {
		return b.Delete(key)
	}
	if was := b.Get(key); p.fresh && was != nil {
		return fmt.Errorf("%s is of %s already", p.key, was)
	}
	return b.Put(key, p.value)
}

// change is what one call does: on disk, then in memory.
type change struct {
	puts  []put
	apply func(*memory)
}

// add writes a value as JSON, which the model's types always can be.
func (c *change) add(bucket []byte, key string, value any) {
	b, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("store: %T: %v", value, err))
	}
	c.puts = append(c.puts, put{bucket: bucket, key: key, value: b})
}

func (c *change) drop(bucket []byte, key string) {
	c.puts = append(c.puts, put{bucket: bucket, key: key})
}

// commit makes a change. The write lock is held.
func (s *Store) commit(c change) error {
	if s.broken != nil {
		return s.broken
	}
	revision := s.mem.revision + 1
	err := s.db.Update(func(tx *bbolt.Tx) error {
		for _, p := range c.puts {
			if err := p.do(tx); err != nil {
				return err
			}
		}
		return tx.Bucket(meta).Put([]byte("revision"), text(revision))
	})
	if err != nil {
		// Whether it is on disk is not known: what is there counts.
		return cmp.Or(s.load(), fmt.Errorf("the store cannot be written: %w: see to its disk", err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.apply(s.mem)
	s.mem.revision = revision
	s.tell()
	return nil
}

// tell wakes those who wait. The lock is held.
func (s *Store) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// load reads all from disk; where that fails nothing is taken any more.
func (s *Store) load() error {
	var m *memory
	err := s.db.View(func(tx *bbolt.Tx) (err error) {
		m, err = read(tx)
		return err
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.broken = fmt.Errorf("the store cannot be read: %w", err)
		return s.broken
	}
	s.mem = m
	s.tell()
	return nil
}

// Err is why nothing can be changed; nil where all is well.
func (s *Store) Err() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.broken
}

// Domain is whose networks they are.
func (s *Store) Domain() string { return s.domain }

// Revision grows with each change, and never falls.
func (s *Store) Revision() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mem.revision
}

// Wait waits until the revision is another than the one named, or ctx ends; it
// gives the present one.
func (s *Store) Wait(ctx context.Context, after uint64) uint64 {
	for {
		s.mu.RLock()
		now, changed := s.mem.revision, s.changed
		s.mu.RUnlock()
		if now != after {
			return now
		}
		select {
		case <-ctx.Done():
			return now
		case <-changed:
		}
	}
}

// State is everything at one moment; of the attachments those of a node, of all where
// "".
func (s *Store) State(node string) (vdn.State, []vdn.Attachment) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mem.state(s.domain), s.mem.list("", node)
}
