// Package etcd keeps a state in etcd, for several processes at once: a batch is one
// transaction, which etcd takes if nobody was faster. Keys are PREFIX/BUCKET/KEY.
package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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

// Backend is a way to etcd.
type Backend struct {
	client *clientv3.Client
	prefix string
	log    *slog.Logger
}

var _ kv.Backend = (*Backend)(nil)

// Times of what is asked.
const (
	// answerWait is how long one question may take: a member that does not answer is
	// left for another.
	answerWait = time.Second
	// keepAlive is how often a silent connection is probed, and how long it may take to
	// answer that.
	keepAlive = 2 * time.Second
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
	client, err := clientv3.New(clientv3.Config{
		Endpoints: c.Endpoints, TLS: c.TLS, Username: c.User, Password: c.Password, DialTimeout: answerWait,
		DialKeepAliveTime: keepAlive, DialKeepAliveTimeout: keepAlive, PermitWithoutStream: true, Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, fmt.Errorf("store: etcd %s: %w", strings.Join(c.Endpoints, ", "), explain(err))
	}
	b := &Backend{client: client, prefix: strings.TrimSuffix(c.Prefix, "/") + "/", log: c.Log}
	if err := b.checkFormat(ctx); err != nil {
		if errors.Is(err, kv.ErrUnavailable) {
			err = errors.Join(err, refusals(ctx, c.Endpoints))
		}
		return nil, errors.Join(fmt.Errorf("store: etcd %s: %w", strings.Join(c.Endpoints, ", "), err), b.Close())
	}
	return b, nil
}

// refusals are why connections to members cannot be made, which the client keeps to
// itself; nil where all can be.
func refusals(ctx context.Context, endpoints []string) error {
	var errs []error
	for _, e := range endpoints {
		u, err := url.Parse(e)
		if err != nil {
			continue
		}
		c, err := (&net.Dialer{Timeout: answerWait}).DialContext(ctx, "tcp", u.Host)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		_ = c.Close() // it was only to see
	}
	return errors.Join(errs...)
}

// key is where a value is.
func (b *Backend) key(bucket, key string) string { return b.prefix + bucket + "/" + key }

// checkFormat notes the layout where nothing is yet.
func (b *Backend) checkFormat(ctx context.Context) error {
	key := b.key(kv.Meta, kv.FormatKey)
	resp, err := ask(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return b.client.Txn(ctx).If(clientv3.Compare(clientv3.Version(key), "=", 0)).
			Then(clientv3.OpPut(key, string(kv.Number(kv.Format)))).Else(clientv3.OpGet(key)).Commit()
	})
	if err != nil || resp.Succeeded {
		return err
	}
	if got := kv.ParseNumber(resp.Responses[0].GetResponseRange().Kvs[0].Value); got != kv.Format {
		return fmt.Errorf("%s is of format %d, this program knows %d: run the newer program", b.prefix, got, kv.Format)
	}
	return nil
}

// ask asks one question, for so long.
func ask[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	answer, err := f(ctx)
	return answer, explain(err)
}

// explain makes kv.ErrUnavailable of what another try may heal.
func explain(err error) error {
	if err == nil {
		return nil
	}
	var e rpctypes.EtcdError
	code := status.Code(err)
	if errors.As(err, &e) {
		code = e.Code()
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, clientv3.ErrNoAvailableEndpoints),
		code == codes.Unavailable, code == codes.DeadlineExceeded, code == codes.Canceled:
		return fmt.Errorf("%w: %w", kv.ErrUnavailable, err)
	}
	return err
}

// Load is kv.Backend's.
func (b *Backend) Load(ctx context.Context) (s kv.Snapshot, err error) {
	end := clientv3.GetPrefixRangeEnd(b.prefix)
	for from := b.prefix; ; {
		options := []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithLimit(page), clientv3.WithRev(s.At)} // 0 is the newest
		resp, err := ask(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) { return b.client.Get(ctx, from, options...) })
		if err != nil {
			return s, err
		}
		if s.At == 0 {
			s.At = resp.Header.Revision
		}
		for _, pair := range resp.Kvs {
			b.collect(&s.Batch, string(pair.Key), pair.Value)
		}
		if !resp.More {
			return s, nil
		}
		from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
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
	before := clientv3.Compare(clientv3.Value(revision), "=", string(kv.Number(batch.Revision-1)))
	if batch.Revision == 1 {
		before = clientv3.Compare(clientv3.Version(revision), "=", 0)
	}
	compare, ops := []clientv3.Cmp{before}, []clientv3.Op{
		clientv3.OpPut(revision, string(kv.Number(batch.Revision))), clientv3.OpPut(b.key(kv.Meta, kv.WriterKey), batch.Writer),
	}
	for _, p := range batch.Puts {
		key := b.key(p.Bucket, p.Key)
		if p.Fresh {
			compare = append(compare, clientv3.Compare(clientv3.Version(key), "=", 0))
		}
		if p.Value == nil {
			ops = append(ops, clientv3.OpDelete(key))
		} else {
			ops = append(ops, clientv3.OpPut(key, string(p.Value)))
		}
	}
	resp, err := ask(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return b.client.Txn(ctx).If(compare...).Then(ops...).Else(clientv3.OpGet(revision)).Commit()
	})
	if err != nil || resp.Succeeded {
		return err
	}
	var now uint64
	if pairs := resp.Responses[0].GetResponseRange().Kvs; len(pairs) > 0 {
		now = kv.ParseNumber(pairs[0].Value)
	}
	if now == batch.Revision-1 {
		return errors.New("an address has an owner that the attachments do not show: see to who else writes below " + b.prefix)
	}
	return kv.ErrConflict
}

// Revision is kv.Backend's.
func (b *Backend) Revision(ctx context.Context) (uint64, error) {
	resp, err := ask(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return b.client.Get(ctx, b.key(kv.Meta, kv.RevisionKey))
	})
	if err != nil || len(resp.Kvs) == 0 {
		return 0, err
	}
	return kv.ParseNumber(resp.Kvs[0].Value), nil
}

// Follow is kv.Backend's.
func (b *Backend) Follow(ctx context.Context, after kv.Snapshot, do func(kv.Batch) error) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	watch := b.client.Watch(ctx, b.prefix, clientv3.WithPrefix(), clientv3.WithRev(after.At+1))
	for resp := range watch {
		if err := resp.Err(); err != nil {
			return explain(err)
		}
		if err := b.each(resp.Events, do); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return explain(err)
	}
	return fmt.Errorf("%w: the watch ended", kv.ErrUnavailable)
}

// each gives the batches of a watch's answer, which has all of a revision of etcd's.
func (b *Backend) each(events []*clientv3.Event, do func(kv.Batch) error) error {
	for len(events) > 0 {
		at := events[0].Kv.ModRevision
		var batch kv.Batch
		whole := false
		for len(events) > 0 && events[0].Kv.ModRevision == at {
			value := events[0].Kv.Value
			if events[0].Type == clientv3.EventTypeDelete {
				value = nil
			}
			whole = b.collect(&batch, string(events[0].Kv.Key), value) || whole
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
func (b *Backend) Close() error { return b.client.Close() }
