package config

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/access"
	"github.com/fairlead/fairlead/vdn/client"
	"github.com/fairlead/fairlead/vdn/federation"
	"github.com/fairlead/fairlead/vdn/store/etcd"
)

// DefaultVDNData is the default data directory of the VDN controller.
const DefaultVDNData = "/var/lib/fairlead/vdn"

// VDN is the configuration of fairlead vdn, the VDN controller.
type VDN struct {
	// Name distinguishes this controller from the others of its domain; empty: the host
	// name.
	Name string
	// Data is the directory of its store, unless that is in etcd.
	Data string
	// Etcd configures the store that it shares with other controllers.
	Etcd Etcd
	// Domain is the DNS name by which other domains know this one.
	Domain string
	// Listen is address:port, or unix:///path of a socket.
	Listen string
	// TLSCert and TLSKey are PEM files; set both or none.
	TLSCert, TLSKey string
	// TokenFile contains a token that permits everything, AccessFile several tokens with
	// roles. Without either, everyone may do everything.
	TokenFile, AccessFile string
	// AuditLog is the audit log file, or "-"; empty: none.
	AuditLog string
	// Kubernetes uses the VirtualNetworks of a cluster as networks, accessed through
	// Kubeconfig or, if that is empty, the service account of the pod.
	Kubernetes bool
	Kubeconfig string
	// FederationListen is address:port for other domains; empty: federation is disabled
	// in both directions. It requires FederationKeys.
	FederationListen string
	FederationKeys   federation.Keys
}

// ResolvedVDN is a valid VDN, parsed.
type ResolvedVDN struct {
	VDN
	// Socket is the path of the unix socket, if it listens on one.
	Socket string
	// TLS is nil without TLS.
	TLS *tls.Config
	// Tokens are the valid tokens; nil if none are required.
	Tokens access.Finder
	// Store is the configuration of its store in etcd; nil for a directory.
	Store *etcd.Config
}

// Resolve validates and parses the configuration. It reports all errors together.
func (c VDN) Resolve() (*ResolvedVDN, error) {
	p, r := &parser{}, &ResolvedVDN{VDN: c}
	if c.Data == "" && len(c.Etcd.Endpoints) == 0 {
		p.refuse("data", "required: set the folder for the persistent state")
	}
	if !vdn.IsDomain(c.Domain) {
		p.refuse("domain", "%q is not a lower-case DNS name like daejeon.example", c.Domain)
	}
	if c.Kubeconfig != "" && !c.Kubernetes {
		p.refuse("kubeconfig", "requires --kubernetes")
	}
	if c.TokenFile != "" {
		token, err := client.ReadToken(c.TokenFile)
		if err != nil {
			p.refuse("token-file", "%v", err)
		}
		r.Tokens = access.Single("token-file", token)
	}
	if c.AccessFile != "" {
		also, _ := r.Tokens.(access.Tokens)
		tokens, err := access.Open(c.AccessFile, also, slog.Default())
		if err != nil {
			p.refuse("access-file", "%v", err)
		}
		r.Tokens = tokens
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		p.refuse("tls-cert", "must be set together with --tls-key")
	} else if c.TLSCert != "" {
		pair, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
		if err != nil {
			p.refuse("tls-cert", "%v", err)
		}
		r.TLS = &tls.Config{GetCertificate: c.certificate(pair), MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	}
	if r.Name == "" {
		r.Name, _ = os.Hostname() // informational only
	}
	r.Store = c.Etcd.resolve(p, c.Domain)
	r.listen(p)
	c.federation(p)
	return r, p.err()
}

// certificate returns the current contents of the files for each connection, because
// certificates may expire while the controller runs. While they cannot be read, because
// they are being replaced, the last contents are used.
func (c VDN) certificate(first tls.Certificate) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	var last atomic.Pointer[tls.Certificate]
	last.Store(&first)
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		if now, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey); err == nil {
			last.Store(&now)
		}
		return last.Load(), nil
	}
}

// federation validates the certificates for other domains, which are required.
func (c VDN) federation(p *parser) {
	if k := c.FederationKeys; c.FederationListen == "" {
		if k != (federation.Keys{}) {
			p.refuse("federation-cert", "requires --federation-listen, for example :7474")
		}
		return
	} else if k.Cert == "" || k.Key == "" || k.CA == "" {
		p.refuse("federation-listen", "requires --federation-cert, --federation-key and --federation-ca")
	}
	if _, _, err := net.SplitHostPort(c.FederationListen); err != nil {
		p.refuse("federation-listen", "%q is not address:port or :port", c.FederationListen)
	}
}

// listen validates the listen address: without TLS only on this machine.
func (r *ResolvedVDN) listen(p *parser) {
	if path, ok := strings.CutPrefix(r.Listen, "unix://"); ok {
		if !filepath.IsAbs(path) {
			p.refuse("listen", "%q is not the absolute path of a socket, for example unix:///run/fairlead/vdn/api.sock", r.Listen)
		}
		r.Socket = path
		return
	}
	host, _, err := net.SplitHostPort(r.Listen)
	if err != nil {
		p.refuse("listen", "%q is not address:port or unix:///path", r.Listen)
		return
	}
	if addr, err := netip.ParseAddr(host); r.TLSCert == "" && host != "localhost" && (err != nil || !addr.IsLoopback()) {
		p.refuse("listen", "%s is reachable from other machines: set --tls-cert and --tls-key, or listen on 127.0.0.1", r.Listen)
	}
}
