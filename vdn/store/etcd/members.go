package etcd

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/internal/sleep"
	"github.com/fairlead/fairlead/vdn/store/kv"
)

// members are the connections to etcd's members. One is used until it fails, then the next.
type members struct {
	all            []*grpc.ClientConn
	user, password string

	mu    sync.Mutex
	at    int           // index of the member in use
	left  chan struct{} // closed when the member in use changes
	token token         // the account's token; empty before authentication, or without an account
	// logins are the logins in progress, by member.
	logins map[*grpc.ClientConn]*login
}

// login is a request for a token. token and err are valid once done is closed.
type login struct {
	done  chan struct{}
	token token
	err   error
}

// method is the path of a method of the etcd API.
type method string

const (
	kvRange        method = "/etcdserverpb.KV/Range"
	kvTxn          method = "/etcdserverpb.KV/Txn"
	watchWatch     method = "/etcdserverpb.Watch/Watch"
	leaseGrant     method = "/etcdserverpb.Lease/LeaseGrant"
	leaseRevoke    method = "/etcdserverpb.Lease/LeaseRevoke"
	leaseKeepAlive method = "/etcdserverpb.Lease/LeaseKeepAlive"
	authenticate   method = "/etcdserverpb.Auth/Authenticate"
)

// answer is a received message.
type answer interface{ parse([]byte) error }

// codec passes the messages of wire.go to gRPC.
type codec struct{}

func (codec) Name() string { return "proto" }

func (codec) Marshal(v any) ([]byte, error) {
	m, ok := v.(message)
	if !ok {
		return nil, fmt.Errorf("%T is not a message", v)
	}
	return m, nil
}

func (codec) Unmarshal(b []byte, v any) error {
	a, ok := v.(answer)
	if !ok {
		return fmt.Errorf("%T is not an answer", v)
	}
	return a.parse(b)
}

// largest limits the size of a response, in bytes. A watch that resumes receives the
// changes of 1,000 revisions in one message, of up to maxPuts values each.
const largest = 512 << 20

// dial prepares the connections, which gRPC establishes in the background.
func dial(c Config) (*members, error) {
	m := &members{user: c.User, password: c.Password, left: make(chan struct{}), logins: map[*grpc.ClientConn]*login{}}
	for _, e := range c.Endpoints {
		u, err := url.Parse(e)
		if err != nil {
			return nil, err
		}
		conn, err := grpc.NewClient("passthrough:///"+host(u), options(c.TLS)...)
		if err != nil {
			return nil, errors.Join(err, m.close())
		}
		conn.Connect()
		m.all = append(m.all, conn)
	}
	m.at = rand.IntN(len(m.all))
	return m, nil
}

// host returns an endpoint's host and port.
func host(u *url.URL) string {
	if u.Port() == "" {
		return net.JoinHostPort(u.Hostname(), "2379")
	}
	return u.Host
}

func options(c *tls.Config) []grpc.DialOption {
	keys := insecure.NewCredentials()
	if c != nil {
		keys = credentials.NewTLS(c)
	}
	return []grpc.DialOption{
		grpc.WithTransportCredentials(keys), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithIdleTimeout(0),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(codec{}), grpc.MaxCallRecvMsgSize(largest)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepAlive, Timeout: keepAliveWait, PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: connectWait,
		}),
	}
}

// one returns the member to use, and a channel that is closed when the member in use
// changes. It skips members that are not connected if another is.
func (m *members) one() (*grpc.ClientConn, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ready := -1
	for i := range m.all {
		at := (m.at + i) % len(m.all)
		switch m.all[at].GetState() {
		case connectivity.Ready:
			if ready < 0 {
				ready = at
			}
		case connectivity.Idle: // gRPC does not reconnect by itself
			m.all[at].Connect()
		}
	}
	if ready >= 0 {
		m.move(ready)
	}
	return m.all[m.at], m.left
}

// move switches to another member. The caller holds the lock.
func (m *members) move(to int) {
	if to != m.at {
		m.at = to
		close(m.left)
		m.left = make(chan struct{})
	}
}

// leave switches to the next member after one has failed.
func (m *members) leave(failed *grpc.ClientConn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all[m.at] == failed {
		m.move((m.at + 1) % len(m.all))
	}
}

// ask sends an idempotent request to one member after the other, until one responds or
// answerWait expires.
func (m *members) ask(ctx context.Context, what method, q message, a answer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	for i := 1; ; i++ {
		before := err
		err = m.by(ctx, func(ctx context.Context, conn *grpc.ClientConn, _ <-chan struct{}) error {
			return conn.Invoke(ctx, string(what), q, a)
		})
		if !errors.Is(err, kv.ErrUnavailable) {
			return err
		}
		if i%len(m.all) == 0 {
			sleep.For(ctx, betweenRounds)
		}
		if ctx.Err() != nil {
			return cmp.Or(before, err) // the cause, if the last error is only the deadline
		}
	}
}

// askOnce sends a request to one member.
func (m *members) askOnce(ctx context.Context, what method, q message, a answer) error {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	return m.by(ctx, func(ctx context.Context, conn *grpc.ClientConn, _ <-chan struct{}) error {
		return conn.Invoke(ctx, string(what), q, a)
	})
}

// by calls do with a member, and switches to the next one if do fails because of it. do
// also receives a channel that is closed when the member is left for another reason. A
// request whose token etcd rejects has had no effect, and is repeated once with a new
// token.
func (m *members) by(ctx context.Context, do func(context.Context, *grpc.ClientConn, <-chan struct{}) error) error {
	conn, left := m.one()
	for again := false; ; again = true {
		known, err := m.known(ctx, conn)
		if err == nil {
			err = do(known, conn, left)
		}
		if again || m.user == "" || !isForgotten(err) {
			err = explain(err)
			if errors.Is(err, kv.ErrUnavailable) && !errors.Is(ctx.Err(), context.Canceled) {
				m.leave(conn)
			}
			return err
		}
		m.setToken("")
	}
}

// explain marks errors that a retry may resolve as kv.ErrUnavailable.
func explain(err error) error {
	if err == nil {
		return nil
	}
	code := status.Code(err)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, io.EOF) ||
		code == codes.Unavailable || code == codes.DeadlineExceeded || code == codes.Canceled {
		return fmt.Errorf("%w: %w", kv.ErrUnavailable, err)
	}
	return err
}

// say opens a stream and sends its only request.
func say(ctx context.Context, conn *grpc.ClientConn, what method, q message) (grpc.ClientStream, error) {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, string(what))
	if err != nil {
		return nil, err
	}
	if err := stream.SendMsg(q); err != nil && !errors.Is(err, io.EOF) { // RecvMsg returns the cause
		return nil, err
	}
	return stream, nil
}

// etcd error messages that its status codes do not distinguish.
const (
	oldToken = "etcdserver: revision of auth store is old" // accounts have changed since
	noToken  = "etcdserver: invalid auth token"
	noAuth   = "etcdserver: authentication is not enabled"
)

// isForgotten reports whether etcd requires a new token.
func isForgotten(err error) bool {
	return status.Code(err) == codes.Unauthenticated || status.Convert(err).Message() == oldToken
}

// known adds the account's token to the context, and makes a member without a leader fail
// the request.
func (m *members) known(ctx context.Context, conn *grpc.ClientConn) (context.Context, error) {
	ctx = metadata.AppendToOutgoingContext(ctx, "hasleader", "true")
	if m.user == "" {
		return ctx, nil
	}
	m.mu.Lock()
	t := m.token
	m.mu.Unlock()
	if t == "" {
		var err error
		if t, err = m.login(ctx, conn); err != nil || t == "" { // no token needed if etcd has no accounts
			return ctx, err
		}
	}
	return metadata.AppendToOutgoingContext(ctx, "token", string(t)), nil
}

// login requests a token. etcd hashes the password for it, which on a busy machine can take
// longer than a request may. So a login continues after ctx ends, for the next request.
func (m *members) login(ctx context.Context, conn *grpc.ClientConn) (token, error) {
	m.mu.Lock()
	l := m.logins[conn]
	if l == nil {
		l = &login{done: make(chan struct{})}
		m.logins[conn] = l
		go m.authenticate(context.WithoutCancel(ctx), conn, l)
	}
	m.mu.Unlock()
	select {
	case <-l.done:
		return l.token, l.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// authenticate performs a login. Without accounts, its token is empty.
func (m *members) authenticate(ctx context.Context, conn *grpc.ClientConn, l *login) {
	ctx, cancel := context.WithTimeout(ctx, connectWait)
	defer cancel()
	l.err = conn.Invoke(ctx, string(authenticate), message(nil).text(1, m.user).text(2, m.password), &l.token)
	if status.Convert(l.err).Message() == noAuth {
		l.err = nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.logins, conn)
	if l.err == nil {
		m.token = l.token
	}
	close(l.done)
}

func (m *members) setToken(t token) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.token = t
}

func (m *members) close() error {
	var errs []error
	for _, conn := range m.all {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}
