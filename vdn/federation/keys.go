package federation

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/limit"
)

// Keys are PEM files: our certificate, which has the name of our domain, its key, and the
// CA certificates of our peers. They are read again when they change.
type Keys struct {
	Cert, Key, CA string
}

// pair is the content of the files.
type pair struct {
	cert tls.Certificate
	ca   *x509.CertPool
}

func (k Keys) load() (*pair, error) {
	cert, err := tls.LoadX509KeyPair(k.Cert, k.Key)
	if err != nil {
		return nil, fmt.Errorf("federation: certificate %s with key %s: %w", k.Cert, k.Key, err)
	}
	pem, err := limit.ReadFile(k.CA, limit.Secret)
	if err != nil {
		return nil, fmt.Errorf("federation: CA of peers: %w", err)
	}
	ca := x509.NewCertPool()
	if !ca.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("federation: CA of peers: %s contains no PEM certificate", k.CA)
	}
	return &pair{cert, ca}, nil
}

// stamp changes when one of the files does.
func (k Keys) stamp() (s [3]time.Time) {
	for i, name := range []string{k.Cert, k.Key, k.CA} {
		if info, err := os.Stat(name); err == nil {
			s[i] = info.ModTime()
		}
	}
	return s
}

// ring caches Keys. If the files cannot be read, the last content stays valid.
type ring struct {
	keys Keys

	mu    sync.Mutex
	stamp [3]time.Time
	pair  *pair
}

// newRing reads keys for the first time.
func newRing(keys Keys) (*ring, error) {
	r := &ring{keys: keys, stamp: keys.stamp()}
	var err error
	r.pair, err = keys.load()
	return r, err
}

// now returns the current content of the files, as a new pair if it changed.
func (r *ring) now() *pair {
	r.mu.Lock()
	defer r.mu.Unlock()
	stamp := r.keys.stamp()
	if stamp == r.stamp {
		return r.pair
	}
	if p, err := r.keys.load(); err == nil { // otherwise the files may be half written
		r.stamp, r.pair = stamp, p
	}
	return r.pair
}

// asServer requires a certificate from all clients.
func (r *ring) asServer() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			p := r.now()
			return &tls.Config{
				MinVersion:   tls.VersionTLS13,
				Certificates: []tls.Certificate{p.cert},
				ClientAuth:   tls.RequireAndVerifyClientCert,
				ClientCAs:    p.ca,
			}, nil
		},
	}
}

// asClient returns the configuration to connect to a domain, whose certificate must have
// its name.
func (p *pair) asClient(domain string) *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{p.cert},
		RootCAs:      p.ca,
		ServerName:   domain,
	}
}
