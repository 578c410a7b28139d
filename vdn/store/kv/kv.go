// Package kv is the door to where the state of a domain's networks is kept: values in
// buckets, changed by whole batches, one after the other. Each batch makes the next
// revision. Several processes may share a Backend's state; what the values mean is
// vdn/store's.
package kv

import (
	"context"
	"errors"
	"strconv"
)

// The buckets. Values are JSON but for those of addresses, freed and slices.
const (
	Networks    = "networks"    // by name
	Attachments = "attachments" // by ID
	Addresses   = "addresses"   // the attachment's ID, by address
	Freed       = "freed"       // at which revision, by address
	Slices      = "slices"      // the number, by name
	Peers       = "peers"       // by domain
	Nodes       = "nodes"       // by name
	// Meta has the backend's own: the keys below.
	Meta = "meta"
)

// Keys in Meta.
const (
	RevisionKey = "revision"
	WriterKey   = "writer"
	FormatKey   = "format"
)

// Buckets are those whose values Load gives.
var Buckets = []string{Networks, Attachments, Addresses, Freed, Slices, Peers, Nodes}

// Format is the layout that this code knows.
const Format = 1

// Put is one value to be written.
type Put struct {
	Bucket, Key string
	// Value is deleted where nil.
	Value []byte
	// Fresh says that there may be no value yet.
	Fresh bool
}

// Batch is a change of the state, whole or not at all.
type Batch struct {
	// Revision is that of the state with it: one more than before.
	Revision uint64
	// Writer is unique to the attempt that committed it.
	Writer string
	Puts   []Put
}

// Snapshot is all of a state.
type Snapshot struct {
	// Batch is the last one's revision and writer, with all values.
	Batch
	// At is where Follow goes on from; the backend's own.
	At int64
}

// Backend keeps a state. Its methods may be called concurrently.
type Backend interface {
	// Load gives everything, no older than what was committed before the call.
	Load(ctx context.Context) (Snapshot, error)
	// Commit makes a batch the state's next. An error is ErrConflict where the state is
	// not at the revision before; with any other the batch may be kept or not, and may
	// even be kept later, but only at that revision.
	Commit(ctx context.Context, b Batch) error
	// Revision is the newest, no older than what was committed before the call.
	Revision(ctx context.Context) (uint64, error)
	// Follow gives the batches after a snapshot in their order, from all that commit,
	// until ctx ends or the backend cannot go on.
	Follow(ctx context.Context, after Snapshot, do func(Batch) error) error
	// Lead runs a function while this process, of all that share the state, is the one
	// that leads; again and again until ctx ends. Two may think so for moments.
	Lead(ctx context.Context, id string, run func(ctx context.Context))
	// Shared says that others may change the state, too.
	Shared() bool
	// MaxPuts is how many puts a batch may have; 0 for any number.
	MaxPuts() int
	Close() error
}

// Errors of backends, wrapped.
var (
	// ErrConflict: another batch was faster.
	ErrConflict = errors.New("the state has changed")
	// ErrUnavailable: the backend cannot be asked now.
	ErrUnavailable = errors.New("the store cannot be reached")
)

// Number writes a number as values have it.
func Number[N int | uint16 | uint64](n N) []byte {
	return strconv.AppendUint(nil, uint64(n), 10)
}

// ParseNumber is 0 for what is none.
func ParseNumber(b []byte) uint64 {
	n, _ := strconv.ParseUint(string(b), 10, 64)
	return n
}
