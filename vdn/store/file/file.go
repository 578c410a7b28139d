// Package file stores a state in one bbolt file, for one process. A batch is on disk before
// Commit returns, and survives a crash at any time.
package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/fairlead/fairlead/vdn/store/kv"
)

// Name is the name of the file in its directory.
const Name = "vdn.db"

// lockWait is how long to wait for a previous process to exit.
const lockWait = 2 * time.Second

// Backend is an open file.
type Backend struct {
	db   *bbolt.DB
	path string
}

var _ kv.Backend = (*Backend)(nil)

// Open opens the file in a directory, which it creates if needed.
func Open(folder string) (*Backend, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	b := &Backend{path: filepath.Join(folder, Name)}
	var err error
	b.db, err = bbolt.Open(b.path, 0o600, &bbolt.Options{Timeout: lockWait})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("store %s: another controller uses it: stop it, or use another folder", b.path)
	} else if err != nil {
		return nil, fmt.Errorf("store %s: %w: restore a copy, or start from scratch in another folder", b.path, err)
	}
	if err := b.db.Update(makeBuckets); err != nil {
		return nil, errors.Join(fmt.Errorf("store %s: %w", b.path, err), b.db.Close())
	}
	return b, nil
}

func makeBuckets(tx *bbolt.Tx) error {
	for _, name := range append([]string{kv.Meta}, kv.Buckets...) {
		if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
			return err
		}
	}
	m := tx.Bucket([]byte(kv.Meta))
	switch got := kv.ParseNumber(m.Get([]byte(kv.FormatKey))); got {
	case 0:
		return m.Put([]byte(kv.FormatKey), kv.Number(kv.Format))
	case kv.Format:
		return nil
	default:
		return fmt.Errorf("has format %d, this program supports %d: use a newer version", got, kv.Format)
	}
}

// Load implements kv.Backend.
func (b *Backend) Load(context.Context) (s kv.Snapshot, err error) {
	err = b.db.View(func(tx *bbolt.Tx) error {
		m := tx.Bucket([]byte(kv.Meta))
		s.Revision, s.Writer = kv.ParseNumber(m.Get([]byte(kv.RevisionKey))), string(m.Get([]byte(kv.WriterKey)))
		for _, name := range kv.Buckets {
			err := tx.Bucket([]byte(name)).ForEach(func(k, v []byte) error {
				s.Puts = append(s.Puts, kv.Put{Bucket: name, Key: string(k), Value: append([]byte(nil), v...)})
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return s, fmt.Errorf("store %s: %w", b.path, err)
	}
	return s, nil
}

// Commit implements kv.Backend.
func (b *Backend) Commit(_ context.Context, batch kv.Batch) error {
	return b.db.Update(func(tx *bbolt.Tx) error {
		m := tx.Bucket([]byte(kv.Meta))
		if kv.ParseNumber(m.Get([]byte(kv.RevisionKey)))+1 != batch.Revision {
			return kv.ErrConflict
		}
		for _, p := range batch.Puts {
			if err := put(tx, p); err != nil {
				return err
			}
		}
		return errors.Join(m.Put([]byte(kv.RevisionKey), kv.Number(batch.Revision)), m.Put([]byte(kv.WriterKey), []byte(batch.Writer)))
	})
}

func put(tx *bbolt.Tx, p kv.Put) error {
	b, key := tx.Bucket([]byte(p.Bucket)), []byte(p.Key)
	if p.Value == nil {
		return b.Delete(key)
	}
	if was := b.Get(key); p.Fresh && was != nil {
		return fmt.Errorf("%s is of %s already", p.Key, was)
	}
	return b.Put(key, p.Value)
}

// Revision implements kv.Backend.
func (b *Backend) Revision(context.Context) (revision uint64, err error) {
	err = b.db.View(func(tx *bbolt.Tx) error {
		revision = kv.ParseNumber(tx.Bucket([]byte(kv.Meta)).Get([]byte(kv.RevisionKey)))
		return nil
	})
	return revision, err
}

// Follow implements kv.Backend. No other process commits.
func (b *Backend) Follow(ctx context.Context, _ kv.Snapshot, _ func(kv.Batch) error) error {
	<-ctx.Done()
	return ctx.Err()
}

// Lead implements kv.Backend. There is no other process.
func (b *Backend) Lead(ctx context.Context, _ string, run func(context.Context)) { run(ctx) }

// Shared implements kv.Backend.
func (b *Backend) Shared() bool { return false }

// MaxPuts implements kv.Backend.
func (b *Backend) MaxPuts() int { return 0 }

// Close implements kv.Backend.
func (b *Backend) Close() error { return b.db.Close() }
