package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
)

// pki is a certificate authority for everything in a cluster. Its files are in
// a folder: NAME.crt, NAME.key.
type pki struct {
	dir     string
	ca      []byte // PEM
	cert    *x509.Certificate
	private *ecdsa.PrivateKey
}

func newPKI(dir string) (*pki, error) {
	p := &pki{dir: dir}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "fairlead-test-ca"},
		IsCA:    true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	var key []byte
	var err error
	if p.private, key, err = newKey(); err != nil {
		return nil, err
	}
	der, err := p.sign(template, template, &p.private.PublicKey)
	if err != nil {
		return nil, err
	}
	if p.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	p.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return p, p.write("ca", p.ca, key)
}

// server writes the files of one that serves at addresses, and may ask others as
// one of some groups.
func (p *pki) server(name string, groups []string, addresses ...netip.Addr) error {
	cert, key, err := p.issue(name, groups, addresses...)
	if err != nil {
		return err
	}
	return p.write(name, cert, key)
}

// serviceAccounts writes the key that signs their tokens.
func (p *pki) serviceAccounts() error {
	_, key, err := newKey()
	if err != nil {
		return err
	}
	return os.WriteFile(p.key("sa"), key, 0o600)
}

// issue gives certificate and key, as PEM, of a user in groups, or of a server
// with addresses.
func (p *pki) issue(name string, groups []string, addresses ...netip.Addr) (cert, key []byte, err error) {
	private, key, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: name, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if len(addresses) > 0 {
		// All know the API server by these, too; to others they do no harm.
		template.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
		addresses = append(addresses, netip.MustParsePrefix(ServiceCIDR).Addr().Next())
	}
	for _, a := range addresses {
		template.IPAddresses = append(template.IPAddresses, net.IP(a.AsSlice()))
	}
	der, err := p.sign(template, p.cert, &private.PublicKey)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key, err
}

func (p *pki) sign(template, parent *x509.Certificate, public *ecdsa.PublicKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().AddDate(10, 0, 0)
	return x509.CreateCertificate(rand.Reader, template, parent, public, p.private)
}

// newKey makes a key, as it is and as PEM.
func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	return key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), err
}

func (p *pki) crt(name string) string { return filepath.Join(p.dir, name+".crt") }
func (p *pki) key(name string) string { return filepath.Join(p.dir, name+".key") }

func (p *pki) write(name string, cert, key []byte) error {
	if err := os.WriteFile(p.crt(name), cert, 0o644); err != nil {
		return err
	}
	return os.WriteFile(p.key(name), key, 0o600)
}

// kubeconfig is a way to the server as kubectl and its like read it.
func kubeconfig(c *rest.Config) []byte {
	text := base64.StdEncoding.EncodeToString
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: test, user: {client-certificate-data: %s, client-key-data: %s}}]
contexts: [{name: test, context: {cluster: test, user: test}}]
current-context: test
`, c.Host, text(c.CAData), text(c.CertData), text(c.KeyData))
}
