// Package etcd stores a state in etcd, for several processes: a batch is one transaction,
// which etcd commits if no other was faster. Keys are PREFIX/BUCKET/KEY.
package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/internal/sleep"
	"github.com/fairlead/fairlead/vdn/store/kv"
)

// Config configures the connection to etcd.
type Config struct {
	// Endpoints are URLs of members, like https://10.0.0.5:2379.
	Endpoints []string
	// Prefix begins every key; one per domain, like /fairlead/vdn/daejeon.example.
	Prefix string
	// TLS is nil for endpoints without TLS.
	TLS *tls.Config
	// User and Password are those of an etcd account; empty for none.
	User, Password string
	Log            *slog.Logger // nil means slog.Default()
}

// Backend stores a state in etcd.
type Backend struct {
	*members
	prefix string // ends with a slash
	log    *slog.Logger
}

var _ kv.Backend = (*Backend)(nil)

// Timeouts and intervals.
const (
	// answerWait limits one request: a member that does not respond is skipped.
	answerWait = time.Second
	// connectWait limits a connection attempt or a login in the background. On a busy
	// machine it may take longer than a request may.
	connectWait = 5 * time.Second
	// betweenRounds is the pause after all members have failed.
	betweenRounds = 50 * time.Millisecond
	// keepAlive is how long a connection may be idle before it is probed, at least 10 s in
	// gRPC; keepAliveWait limits the response.
	keepAlive     = 10 * time.Second
	keepAliveWait = 2 * time.Second
	// candidateWait is how often candidates check whether there is a leader.
	candidateWait = 500 * time.Millisecond
	// leaderTTL is how long a failed leader remains the leader.
	leaderTTL = 3 * time.Second
)

// Limits of a batch and of a page. etcd's default is 128 operations per transaction
// (--max-txn-ops), of which the backend itself uses two.
const (
	maxPuts = 100
	page    = 1000
)

// Open connects and checks that the state has a supported format.
func Open(ctx context.Context, c Config) (*Backend, error) {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	m, err := dial(c)
	if err != nil {
		return nil, fmt.Errorf("store: etcd %s: %w", strings.Join(c.Endpoints, ", "), err)
	}
	b := &Backend{members: m, prefix: strings.TrimSuffix(c.Prefix, "/") + "/", log: c.Log}
	if err := b.begin(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("store: etcd %s: %w", strings.Join(c.Endpoints, ", "), err), b.Close())
	}
	return b, nil
}

// key returns the etcd key of a value.
func (b *Backend) key(bucket, key string) string { return b.prefix + bucket + "/" + key }

// begin checks the format as soon as there is a connection.
func (b *Backend) begin(ctx context.Context) error {
	for until := time.Now().Add(connectWait); ; sleep.For(ctx, betweenRounds) {
		err := b.checkFormat(ctx)
		if !errors.Is(err, kv.ErrUnavailable) || ctx.Err() != nil || time.Now().After(until) {
			return err
		}
	}
}

// checkFormat writes the format to an empty state.
func (b *Backend) checkFormat(ctx context.Context) error {
	key := b.key(kv.Meta, kv.FormatKey)
	var d decided
	err := b.ask(ctx, kvTxn, txn([]message{isAbsent(key)}, []message{opPut(key, string(kv.Number(kv.Format)), 0)}, []message{opGet(key)}), &d)
	if err != nil || d.yes {
		return err
	}
	if got := d.number(); got != kv.Format {
		return fmt.Errorf("%s has format %d, this program supports %d: use a newer version", b.prefix, got, kv.Format)
	}
	return nil
}

// number returns the value that was read as a number; 0 without one.
func (d *decided) number() uint64 { return d.read.number() }

func (l *listed) number() uint64 {
	if len(l.pairs) == 0 {
		return 0
	}
	return kv.ParseNumber(l.pairs[0].value)
}

// Load implements kv.Backend.
func (b *Backend) Load(ctx context.Context) (s kv.Snapshot, err error) {
	for from := b.prefix; ; {
		var l listed
		if err := b.ask(ctx, kvRange, list(from, b.prefix, s.At), &l); err != nil {
			return s, err
		}
		if s.At == 0 {
			s.At = l.at
		}
		for _, p := range l.pairs {
			b.collect(&s.Batch, p.key, p.value)
		}
		if !l.more || len(l.pairs) == 0 {
			return s, nil
		}
		from = l.pairs[len(l.pairs)-1].key + "\x00"
	}
}

// collect adds one value to a batch, and reports whether it is the revision. value is nil
// for a deleted key.
func (b *Backend) collect(batch *kv.Batch, key string, value []byte) (isRevision bool) {
	bucket, name, _ := strings.Cut(strings.TrimPrefix(key, b.prefix), "/")
	switch {
	case bucket == kv.Meta && name == kv.RevisionKey:
		batch.Revision = kv.ParseNumber(value)
		return true
	case bucket == kv.Meta && name == kv.WriterKey:
		batch.Writer = string(value)
	case bucket != kv.Meta && bucket != leaders:
		batch.Puts = append(batch.Puts, kv.Put{Bucket: bucket, Key: name, Value: value})
	}
	return false
}

// Commit implements kv.Backend.
func (b *Backend) Commit(ctx context.Context, batch kv.Batch) error {
	revision := b.key(kv.Meta, kv.RevisionKey)
	before := hasValue(revision, string(kv.Number(batch.Revision-1)))
	if batch.Revision == 1 {
		before = isAbsent(revision)
	}
	compare := []message{before}
	then := []message{opPut(revision, string(kv.Number(batch.Revision)), 0), opPut(b.key(kv.Meta, kv.WriterKey), batch.Writer, 0)}
	for _, p := range batch.Puts {
		key := b.key(p.Bucket, p.Key)
		if p.Fresh {
			compare = append(compare, isAbsent(key))
		}
		if p.Value == nil {
			then = append(then, opDelete(key))
		} else {
			then = append(then, opPut(key, string(p.Value), 0))
		}
	}
	var d decided
	err := b.askOnce(ctx, kvTxn, txn(compare, then, []message{opGet(revision)}), &d)
	switch {
	case err != nil || d.yes:
		return err
	case d.number() == batch.Revision-1:
		return errors.New("an address has an owner without an attachment: check what else writes below " + b.prefix)
	}
	return kv.ErrConflict
}

// Revision implements kv.Backend.
func (b *Backend) Revision(ctx context.Context) (uint64, error) {
	var l listed
	err := b.ask(ctx, kvRange, get(b.key(kv.Meta, kv.RevisionKey)), &l)
	return l.number(), err
}

// Follow implements kv.Backend. If a member fails, it continues with another.
func (b *Backend) Follow(ctx context.Context, after kv.Snapshot, do func(kv.Batch) error) error {
	next := after.At + 1
	for failed := 0; ; {
		began := next
		err := b.follow(ctx, &next, do)
		if next > began {
			failed = 0
		}
		if failed++; failed > len(b.all) || ctx.Err() != nil || !errors.Is(err, kv.ErrUnavailable) {
			return err
		}
	}
}

// follow follows one member from etcd revision next on, and advances next.
func (b *Backend) follow(ctx context.Context, next *int64, do func(kv.Batch) error) error {
	return b.by(ctx, func(ctx context.Context, conn *grpc.ClientConn, left <-chan struct{}) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			defer cancel()
			select {
			case <-left:
			case <-ctx.Done():
			}
		}()
		stream, err := say(ctx, conn, watchWatch, watchRequest(b.prefix, *next))
		if err != nil {
			return err
		}
		for {
			var w watched
			if err := stream.RecvMsg(&w); err != nil {
				return err
			}
			if w.canceled {
				return w.why()
			}
			if err := b.each(w.changes, do); err != nil {
				return err
			}
			if n := len(w.changes); n > 0 {
				*next = w.changes[n-1].at + 1
			}
		}
	})
}

// why returns the cause of a watch's end. etcd sends it as text, without a code.
func (w *watched) why() error {
	switch {
	case w.compacted > 0:
		return fmt.Errorf("etcd has compacted its history up to revision %d", w.compacted)
	case strings.HasSuffix(w.reason, noToken), strings.HasSuffix(w.reason, oldToken):
		return status.Error(codes.Unauthenticated, w.reason)
	}
	return fmt.Errorf("%w: etcd ends the watch: %s", kv.ErrUnavailable, w.reason)
}

// each calls do for the batches of a watch response, which has all changes of an etcd
// revision.
func (b *Backend) each(events []change, do func(kv.Batch) error) error {
	for len(events) > 0 {
		at := events[0].at
		var batch kv.Batch
		whole := false
		for len(events) > 0 && events[0].at == at {
			value := events[0].value
			if events[0].deleted {
				value = nil
			}
			whole = b.collect(&batch, events[0].key, value) || whole
			events = events[1:]
		}
		if !whole {
			if len(batch.Puts) > 0 {
				b.log.Warn("vdn store: another program writes to etcd; this takes effect at the next start", "key", b.key(batch.Puts[0].Bucket, batch.Puts[0].Key))
			}
			continue
		}
		if err := do(batch); err != nil {
			return err
		}
	}
	return nil
}

// Shared implements kv.Backend.
func (b *Backend) Shared() bool { return true }

// MaxPuts implements kv.Backend.
func (b *Backend) MaxPuts() int { return maxPuts }

// Close implements kv.Backend.
func (b *Backend) Close() error { return b.close() }
