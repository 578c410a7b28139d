// Package kv defines the interface to the storage of a domain's networks: values in
// buckets, changed by atomic batches, one after the other. Each batch creates the next
// revision. Several processes may share a Backend's state. vdn/store defines what the
// values mean.
package kv

import (
	"context"
	"errors"
	"strconv"
)

// Buckets. Values are JSON except those of addresses, freed and slices.
const (
	Networks    = "networks"    // by name
	Attachments = "attachments" // by ID
	Addresses   = "addresses"   // the attachment's ID, by address
	Freed       = "freed"       // the revision of the release, by address
	Slices      = "slices"      // the slice number, by name
	Peers       = "peers"       // by domain
	Nodes       = "nodes"       // by name
	// Meta has the backend's own keys, below.
	Meta = "meta"
)

// Keys in Meta.
const (
	RevisionKey = "revision"
	WriterKey   = "writer"
	FormatKey   = "format"
)

// Buckets are the buckets that Load returns.
var Buckets = []string{Networks, Attachments, Addresses, Freed, Slices, Peers, Nodes}

// Format is the supported version of the layout.
const Format = 1

// Put is one value to write.
type Put struct {
	Bucket, Key string
	// Value nil deletes the key.
	Value []byte
	// Fresh requires that the key does not exist yet.
	Fresh bool
}

// Batch is an atomic change of the state.
type Batch struct {
	// Revision is the revision that the batch creates: one more than before.
	Revision uint64
	// Writer is unique to the attempt that committed it.
	Writer string
	Puts   []Put
}

// Snapshot is an entire state.
type Snapshot struct {
	// Batch has the revision and writer of the last batch, with all values.
	Batch
	// At is where Follow continues; specific to the backend.
	At int64
}

// Backend stores a state. Its methods are safe for concurrent use.
type Backend interface {
	// Load returns everything, including all that was committed before the call.
	Load(ctx context.Context) (Snapshot, error)
	// Commit commits a batch. It returns ErrConflict if the state is not at the previous
	// revision. After any other error the batch may have been committed or not, and may
	// even be committed later, but only as that revision.
	Commit(ctx context.Context, b Batch) error
	// Revision returns the newest revision, including all that was committed before the
	// call.
	Revision(ctx context.Context) (uint64, error)
	// Follow calls do for the batches after a snapshot in order, from all processes, until
	// ctx ends or the backend fails.
	Follow(ctx context.Context, after Snapshot, do func(Batch) error) error
	// Lead calls run repeatedly while this process is the leader of those that share the
	// state, until ctx ends. Two processes may briefly both be leaders.
	Lead(ctx context.Context, id string, run func(ctx context.Context))
	// Shared reports whether other processes may change the state.
	Shared() bool
	// MaxPuts returns the maximum number of puts in a batch; 0 for no limit.
	MaxPuts() int
	Close() error
}

// Errors of backends, wrapped.
var (
	// ErrConflict: another batch was committed first.
	ErrConflict = errors.New("the state has changed")
	// ErrUnavailable: the backend cannot be reached at present.
	ErrUnavailable = errors.New("the store cannot be reached")
)

// Number encodes a number as a value.
func Number[N int | uint16 | uint64](n N) []byte {
	return strconv.AppendUint(nil, uint64(n), 10)
}

// ParseNumber decodes a number; 0 for an invalid one.
func ParseNumber(b []byte) uint64 {
	n, _ := strconv.ParseUint(string(b), 10, 64)
	return n
}
