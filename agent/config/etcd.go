package config

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"net/url"
	"strings"

	"github.com/fairlead/fairlead/internal/limit"
	"github.com/fairlead/fairlead/vdn/store/etcd"
)

// Etcd configures how the controllers of a domain reach their shared etcd.
type Etcd struct {
	// Endpoints are the URLs of the members; empty: no etcd.
	Endpoints []string
	// Prefix is the prefix of all keys; "/fairlead/vdn/DOMAIN" if empty.
	Prefix string
	// Cert and Key are PEM files with our client certificate, CA is one with the CA of
	// etcd's certificates.
	Cert, Key, CA string
	// User and PasswordFile are the credentials of an etcd user.
	User, PasswordFile string
}

// resolve validates and parses the configuration; nil without etcd.
func (c Etcd) resolve(p *parser, domain string) *etcd.Config {
	if len(c.Endpoints) == 0 {
		if c.Prefix+c.Cert+c.Key+c.CA+c.User+c.PasswordFile != "" {
			p.refuse("etcd-endpoints", "required: set the etcd members, for example https://10.0.0.5:2379")
		}
		return nil
	}
	r := &etcd.Config{Endpoints: c.Endpoints, Prefix: c.Prefix, User: c.User}
	if r.Prefix == "" {
		r.Prefix = "/fairlead/vdn/" + domain
	}
	secure := 0
	for _, e := range c.Endpoints {
		if c.endpoint(p, e) {
			secure++
		}
	}
	switch {
	case secure > 0 && secure < len(c.Endpoints):
		p.refuse("etcd-endpoints", "all endpoints must have the same scheme")
	case secure > 0:
		r.TLS = c.keys(p)
	case c.Cert+c.Key+c.CA != "":
		p.refuse("etcd-cert", "requires https:// endpoints")
	}
	if (c.User == "") != (c.PasswordFile == "") {
		p.refuse("etcd-user", "must be set together with --etcd-password-file")
	} else if c.User != "" {
		text, err := limit.ReadFile(c.PasswordFile, limit.Secret)
		if err != nil {
			p.refuse("etcd-password-file", "%v", err)
		}
		r.Password = strings.TrimSpace(string(text))
	}
	return r
}

// endpoint validates one endpoint and reports whether it uses TLS.
func (Etcd) endpoint(p *parser, text string) (secure bool) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.Path != "" || u.Scheme != "http" && u.Scheme != "https" {
		p.refuse("etcd-endpoints", "%q is not a URL like https://10.0.0.5:2379", text)
		return false
	}
	addr, err := netip.ParseAddr(u.Hostname())
	if u.Scheme == "http" && u.Hostname() != "localhost" && (err != nil || !addr.IsLoopback()) {
		p.refuse("etcd-endpoints", "%s: what networks are would cross the network in plain text: use https://", text)
	}
	return u.Scheme == "https"
}

// keys returns the TLS configuration for etcd. The certificate is read for each
// connection, because it may expire while the controller runs.
func (c Etcd) keys(p *parser) *tls.Config {
	r := &tls.Config{MinVersion: tls.VersionTLS12}
	if (c.Cert == "") != (c.Key == "") {
		p.refuse("etcd-cert", "must be set together with --etcd-key")
	} else if c.Cert != "" {
		if _, err := tls.LoadX509KeyPair(c.Cert, c.Key); err != nil {
			p.refuse("etcd-cert", "%v", err)
		}
		r.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
			return &pair, err
		}
	}
	if c.CA != "" {
		text, err := limit.ReadFile(c.CA, limit.Secret)
		if err != nil {
			p.refuse("etcd-ca", "%v", err)
			return r
		}
		r.RootCAs = x509.NewCertPool()
		if !r.RootCAs.AppendCertsFromPEM(text) {
			p.refuse("etcd-ca", "%s contains no certificate in PEM format", c.CA)
		}
	}
	return r
}
