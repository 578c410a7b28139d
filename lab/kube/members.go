package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/lab/pki"
)

// Members is an etcd cluster of several members, each of which can be stopped, paused and
// started again. It has etcd's own limits.
type Members struct {
	Programs []*Program
	// URLs are the members' client URLs.
	URLs []string

	keys *pki.Authority
	each []etcd
}

// StartEtcd runs an etcd cluster until the test ends, and fails the test if it does not
// become ready. With keys, clients need certificates of that authority; the members'
// certificate has the name etcd.
func StartEtcd(t testing.TB, members int, keys *pki.Authority) *Members {
	t.Helper()
	bin, err := Binaries("etcd")
	if err != nil {
		t.Fatal(err)
	}
	ports, err := freePorts(2 * members)
	if err != nil {
		t.Fatal(err)
	}
	place, err := NewPlace(nil)
	if err != nil {
		t.Fatal(err)
	}
	m := &Members{keys: keys}
	dirs := make([]string, members) // removed after their contents
	for i := range dirs {
		dirs[i] = t.TempDir()
	}
	t.Cleanup(func() {
		for _, p := range m.Programs {
			if t.Failed() {
				t.Logf("last output of etcd:\n%s", p.LastWords())
			}
			if err := p.Stop(); err != nil {
				t.Error(err)
			}
		}
		place.Close()
	})
	client, err := m.client()
	if err != nil {
		t.Fatal(err)
	}
	var peers []string
	for i := range members {
		peers = append(peers, fmt.Sprintf("m%d=http://127.0.0.1:%d", i, ports[members+i]))
	}
	for i := range members {
		m.add(place, filepath.Join(bin, "etcd"), dirs[i], i, ports[i], peers, client)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if err := m.start(ctx); err != nil {
		t.Fatal(err)
	}
	return m
}

// start starts all members concurrently: none is ready before a majority runs.
func (m *Members) start(ctx context.Context) error {
	errs := make([]error, len(m.Programs))
	var all sync.WaitGroup
	for i, p := range m.Programs {
		all.Go(func() { errs[i] = p.Start(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// client returns a client for the members' health checks.
func (m *Members) client() (*http.Client, error) {
	transport := &http.Transport{DisableKeepAlives: true}
	if m.keys != nil {
		cert, key, err := m.keys.Issue(&x509.Certificate{DNSNames: []string{"etcd"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
		if err == nil {
			err = m.keys.Write("etcd", cert, key)
		}
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, err
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(m.keys.PEM)
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}
	}
	return &http.Client{Transport: transport}, nil
}

func (m *Members) add(place *Place, program, dir string, i int, port uint16, peers []string, client *http.Client) {
	_, peer, _ := strings.Cut(peers[i], "=")
	url := fmt.Sprintf("http://127.0.0.1:%d", port)
	flags := []string{"--log-level", "warn", "--unsafe-no-fsync", "--name", fmt.Sprint("m", i), "--data-dir", filepath.Join(dir, "etcd"),
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", strings.Join(peers, ",")}
	if m.keys != nil {
		url = strings.Replace(url, "http:", "https:", 1)
		flags = append(flags, "--cert-file", m.keys.Crt("etcd"), "--key-file", m.keys.Key("etcd"), "--trusted-ca-file", m.keys.Crt("ca"), "--client-cert-auth")
	}
	flags = append(flags, "--listen-client-urls", url, "--advertise-client-urls", url)
	e := etcd{url, client}
	m.URLs, m.each = append(m.URLs, url), append(m.each, e)
	m.Programs = append(m.Programs, &Program{Place: place, Argv: append([]string{program}, flags...), Log: filepath.Join(dir, "etcd.log"), Ready: e.healthy})
}

// Compact removes all history: a follower that has fallen behind must read everything
// again.
func (m *Members) Compact(ctx context.Context) error { return m.each[0].compact(ctx) }
