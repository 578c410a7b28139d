// Package etcd keeps a state in etcd, for several processes at once: a batch is one
// transaction, which etcd takes if nobody was faster. Keys are PREFIX/BUCKET/KEY.
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

// Config says where etcd is.
type Config struct {
	// Endpoints are URLs of members, like https://10.0.0.5:2379.
	Endpoints []string
	// Prefix begins every key: one for each domain, like /fairlead/vdn/daejeon.example.
	Prefix string
	// TLS is nil where the endpoints speak plainly.
	TLS *tls.Config
	// User and Password are those of etcd's own accounts; none where empty.
	User, Password string
	Log            *slog.Logger // slog.Default() where nil
}

// Backend keeps a state in etcd.
type Backend struct {
	*members
	prefix string // ends with a slash
	log    *slog.Logger
}

var _ kv.Backend = (*Backend)(nil)

// Times of what is asked.
const (
	// answerWait is how long one question may take: a member that does not answer is
	// left for another.
	answerWait = time.Second
	// connectWait is how long a connection or a login may take in the background: on a
	// busy machine longer than a request may.
	connectWait = 5 * time.Second
	// betweenRounds is the pause after all members have failed.
	betweenRounds = 50 * time.Millisecond
	// keepAlive is how long a connection may be silent before it is probed, 10 s or more
	// in gRPC, and keepAliveWait how long the answer may take.
	keepAlive     = 10 * time.Second
	keepAliveWait = 2 * time.Second
	// candidateWait is how often others look whether there is a leader.
	candidateWait = 500 * time.Millisecond
	// leaderTTL is how long a leader that is gone stays so.
	leaderTTL = 3 * time.Second
)

// Limits of a batch and of a page. etcd takes 128 operations in a transaction by
// default (--max-txn-ops), of which two are the backend's own.
const (
	maxPuts = 100
	page    = 1000
)

// Open connects, and makes sure that this code knows the state's layout.
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

// key is where a value is.
func (b *Backend) key(bucket, key string) string { return b.prefix + bucket + "/" + key }

// begin checks the format, as soon as a connection is there.
func (b *Backend) begin(ctx context.Context) error {
	for until := time.Now().Add(connectWait); ; sleep.For(ctx, betweenRounds) {
		err := b.checkFormat(ctx)
		if !errors.Is(err, kv.ErrUnavailable) || ctx.Err() != nil || time.Now().After(until) {
			return err
		}
	}
}

// checkFormat notes the layout where nothing is yet.
func (b *Backend) checkFormat(ctx context.Context) error {
	key := b.key(kv.Meta, kv.FormatKey)
	var d decided
	err := b.ask(ctx, kvTxn, txn([]message{isAbsent(key)}, []message{opPut(key, string(kv.Number(kv.Format)), 0)}, []message{opGet(key)}), &d)
	if err != nil || d.yes {
		return err
	}
	if got := d.number(); got != kv.Format {
		return fmt.Errorf("%s is of format %d, this program knows %d: run the newer program", b.prefix, got, kv.Format)
	}
	return nil
}

// number is the value that was read, as a number; 0 without one.
func (d *decided) number() uint64 { return d.read.number() }

func (l *listed) number() uint64 {
	if len(l.pairs) == 0 {
		return 0
	}
	return kv.ParseNumber(l.pairs[0].value)
}

// Load is kv.Backend's.
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

// collect puts one value where it belongs in a batch, and says whether it is its
// revision. value is nil for what is deleted.
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

// Commit is kv.Backend's.
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
		return errors.New("an address has an owner that the attachments do not show: see to who else writes below " + b.prefix)
	}
	return kv.ErrConflict
}

// Revision is kv.Backend's.
func (b *Backend) Revision(ctx context.Context) (uint64, error) {
	var l listed
	err := b.ask(ctx, kvRange, get(b.key(kv.Meta, kv.RevisionKey)), &l)
	return l.number(), err
}

// Follow is kv.Backend's. If a member fails, it continues with another.
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

// follow follows one member from the revision next of etcd on, and advances next.
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

// why is the cause of a watch's end. etcd sends it as text, without a code.
func (w *watched) why() error {
	switch {
	case w.compacted > 0:
		return fmt.Errorf("etcd has compacted its history up to revision %d", w.compacted)
	case strings.HasSuffix(w.reason, noToken), strings.HasSuffix(w.reason, oldToken):
		return status.Error(codes.Unauthenticated, w.reason)
	}
	return fmt.Errorf("%w: etcd ends the watch: %s", kv.ErrUnavailable, w.reason)
}

// each gives the batches of a watch's answer, which has all of a revision of etcd's.
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
				b.log.Warn("vdn store: somebody else writes into etcd; that counts from the next start on", "key", b.key(batch.Puts[0].Bucket, batch.Puts[0].Key))
			}
			continue
		}
		if err := do(batch); err != nil {
			return err
		}
	}
	return nil
}

// Shared is kv.Backend's.
func (b *Backend) Shared() bool { return true }

// MaxPuts is kv.Backend's.
func (b *Backend) MaxPuts() int { return maxPuts }

// Close is kv.Backend's.
func (b *Backend) Close() error { return b.close() }
