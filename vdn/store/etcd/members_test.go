package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/lab/pki"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/vdn/store/kv"
)

func open(t *testing.T, c Config) *Backend {
	t.Helper()
	var b *Backend
	testkit.Eventually(t, time.Minute, func() (err error) {
		b, err = Open(t.Context(), c)
		return err
	})
	t.Cleanup(func() { _ = b.Close() }) // the test may have closed it
	return b
}

// commit commits the next batch, and retries while etcd is unreachable.
func commit(t *testing.T, b *Backend, revision uint64) {
	t.Helper()
	batch := kv.Batch{Revision: revision, Writer: fmt.Sprint("w", revision), Puts: []kv.Put{{Bucket: kv.Slices, Key: "a", Value: kv.Number(revision)}}}
	testkit.Eventually(t, time.Minute, func() error {
		err := b.Commit(t.Context(), batch)
		if errors.Is(err, kv.ErrConflict) {
			if now, _ := b.Revision(t.Context()); now == revision {
				return nil // an earlier attempt whose response was lost
			}
		}
		return err
	})
}

// following follows from the start and sends each revision on a channel.
func following(t *testing.T, b *Backend) <-chan uint64 {
	ctx, cancel := context.WithCancel(t.Context())
	got, done := make(chan uint64, 100), make(chan error)
	at := kv.Snapshot{At: 1}
	go func() {
		last, err := uint64(0), kv.ErrUnavailable
		for ctx.Err() == nil && errors.Is(err, kv.ErrUnavailable) { // it may give up on a busy machine
			err = b.Follow(ctx, at, func(b kv.Batch) error {
				if b.Revision > last {
					last = b.Revision
					got <- last
				}
				return nil
			})
		}
		done <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, kv.ErrUnavailable) { // the error of a canceled request
			t.Errorf("Follow: %v", err)
		}
	})
	return got
}

// expect checks the next revision.
func expect(t *testing.T, from <-chan uint64, want uint64) {
	t.Helper()
	select {
	case got := <-from:
		if got != want {
			t.Fatalf("revision %d comes, not %d", got, want)
		}
	case <-time.After(time.Minute):
		t.Fatalf("revision %d does not come", want)
	}
}

// member returns the index in URLs of the member in use.
func member(t *testing.T, b *Backend, m *kube.Members) int {
	t.Helper()
	conn, _ := b.one()
	for i, u := range m.URLs {
		if strings.HasSuffix(u, strings.TrimPrefix(conn.Target(), "passthrough://")) {
			return i
		}
	}
	t.Fatalf("%s is none of %v", conn.Target(), m.URLs)
	return 0
}

// TestSilentMember pauses the member in use without closing its connection: requests and
// the watch continue with another, where they were.
func TestSilentMember(t *testing.T) {
	m := kube.StartEtcd(t, 3, nil)
	b := open(t, Config{Endpoints: m.URLs, Prefix: "/a"})
	commits, got := uint64(1), following(t, b)
	commit(t, b, commits)
	expect(t, got, commits)
	for range 3 {
		i := member(t, b, m)
		if err := m.Programs[i].Pause(); err != nil {
			t.Fatal(err)
		}
		commits++
		commit(t, b, commits)
		expect(t, got, commits)
		if member(t, b, m) == i {
			t.Errorf("member %d does not answer, and is still in use", i)
		}
		if err := m.Programs[i].Resume(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMemberComesBack restarts the members that are not in use: they reconnect before they
// are needed.
func TestMemberComesBack(t *testing.T) {
	m := kube.StartEtcd(t, 3, nil)
	b := open(t, Config{Endpoints: m.URLs, Prefix: "/a"})
	state := func(i int, want bool) {
		t.Helper()
		testkit.Eventually(t, time.Minute, func() error {
			_, err := b.Revision(t.Context())
			if s := b.all[i].GetState(); (s == connectivity.Ready) != want {
				return errors.Join(err, fmt.Errorf("the connection to member %d is %v", i, s))
			}
			return err
		})
	}
	other := (member(t, b, m) + 1) % 3
	state(other, true)
	if err := m.Programs[other].Stop(); err != nil {
		t.Fatal(err)
	}
	state(other, false)
	if err := m.Programs[other].Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	state(other, true)
}

// TestSlowConnections uses a proxy on which connecting takes longer than a request may.
func TestSlowConnections(t *testing.T) {
	m := kube.StartEtcd(t, 1, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { slowly(from, strings.TrimPrefix(m.URLs[0], "http://")) })
		}
	})
	b := open(t, Config{Endpoints: []string{"http://" + l.Addr().String()}, Prefix: "/a"})
	commit(t, b, 1)
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// slowly connects a client to a server with a delay.
func slowly(from net.Conn, server string) {
	defer from.Close()
	to, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer to.Close()
	time.Sleep(answerWait * 3 / 2)
	go func() {
		_, _ = io.Copy(to, from)
		to.Close()
	}()
	_, _ = io.Copy(from, to)
}

// TestAccounts uses an etcd with accounts and TLS: a wrong password is rejected with a
// message, and a token that etcd has forgotten is replaced, for requests and for the watch.
func TestAccounts(t *testing.T) {
	keys, err := pki.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	m := kube.StartEtcd(t, 1, keys)
	c := Config{Endpoints: m.URLs, Prefix: "/a", TLS: clientTLS(t, keys)}
	admin := open(t, c)
	account := func(what method, q message) {
		t.Helper()
		// Not ask, because hashing a password takes long on a busy machine.
		err := admin.by(t.Context(), func(ctx context.Context, conn *grpc.ClientConn, _ <-chan struct{}) error {
			return conn.Invoke(ctx, string(what), q, new(token)) // the response is not used
		})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for user, role := range map[string]string{"root": "root", "vdn": "vdn"} {
		account("/etcdserverpb.Auth/UserAdd", message(nil).text(1, user).text(2, "secret "+user))
		account("/etcdserverpb.Auth/RoleAdd", message(nil).text(1, role))
		account("/etcdserverpb.Auth/UserGrantRole", message(nil).text(1, user).text(2, role))
	}
	below := message(nil).number(1, 2).text(2, "/a/").text(3, end("/a/")) // READWRITE
	account("/etcdserverpb.Auth/RoleGrantPermission", message(nil).text(1, "vdn").inner(2, below))
	account("/etcdserverpb.Auth/AuthEnable", nil)

	c.User, c.Password = "vdn", "secret vdn"
	b := open(t, c)
	commit(t, b, 1)
	got := following(t, b)
	expect(t, got, 1)
	b.setToken("nonsense.1")
	commit(t, b, 2)
	expect(t, got, 2)
	b.setToken("nonsense.1")
	expect(t, following(t, b), 1)

	for name, wrong := range map[string]struct {
		user, password, prefix, want string
	}{
		"password": {"vdn", "other", "/a", "invalid user ID or password"},
		"account":  {"", "", "/a", "permission denied"},
		"prefix":   {"vdn", "secret vdn", "/b", "permission denied"},
	} {
		c := c
		c.User, c.Password, c.Prefix = wrong.user, wrong.password, wrong.prefix
		testkit.Eventually(t, time.Minute, func() error { // a busy machine may be too slow for a hash
			if _, err := Open(t.Context(), c); err == nil || errors.Is(err, kv.ErrUnavailable) || !strings.Contains(err.Error(), wrong.want) {
				return fmt.Errorf("wrong %s: %w", name, err)
			}
			return nil
		})
	}
	c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	if _, err := Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an authority that is not known: %v", err)
	}
}

func clientTLS(t *testing.T, keys *pki.Authority) *tls.Config {
	t.Helper()
	cert, key, err := keys.Issue(&x509.Certificate{DNSNames: []string{"client"}})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(keys.PEM)
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{pair}}
}

func TestHost(t *testing.T) {
	for text, want := range map[string]string{
		"http://127.0.0.1:2379": "127.0.0.1:2379", "https://etcd": "etcd:2379", "https://[::1]": "[::1]:2379", "https://[::1]:1": "[::1]:1",
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := host(u); got != want {
			t.Errorf("%s is at %s, not %s", text, got, want)
		}
	}
}
