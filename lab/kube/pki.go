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
	dir  string
	ca   []byte // PEM
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newPKI makes an authority and what the server needs: its own certificate, and
// the key that signs service accounts' tokens (sa.key).
func newPKI(dir string, addresses ...netip.Addr) (*pki, error) {
	p := &pki{dir: dir}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "fairlead-test-ca"},
		IsCA:    true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	var err error
	if p.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	der, err := p.sign(template, template, &p.key.PublicKey)
	if err != nil {
		return nil, err
	}
	if p.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	p.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	key, err := encodeKey(p.key)
	if err != nil {
		return nil, err
	}
	if err := p.write("ca", p.ca, key); err != nil {
		return nil, err
	}
	return p, p.server("apiserver", addresses...)
}

// server writes the certificate of a server, and sa.key.
func (p *pki) server(name string, addresses ...netip.Addr) error {
	template := &x509.Certificate{
		Subject:  pkix.Name{CommonName: name},
		DNSNames: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
	}
	for _, a := range append(addresses, netip.MustParsePrefix(ServiceCIDR).Addr().Next()) {
		template.IPAddresses = append(template.IPAddresses, net.IP(a.AsSlice()))
	}
	cert, key, err := p.issue(template)
	if err != nil {
		return err
	}
	if err := p.write(name, cert, key); err != nil {
		return err
	}
	_, account, err := p.issue(&x509.Certificate{})
	if err != nil {
		return err
	}
	return os.WriteFile(p.file("sa.key"), account, 0o600)
}

// client gives certificate and key of a user in groups, as PEM.
func (p *pki) client(user string, groups []string) (cert, key []byte, err error) {
	return p.issue(&x509.Certificate{Subject: pkix.Name{CommonName: user, Organization: groups}})
}

func (p *pki) issue(template *x509.Certificate) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	der, err := p.sign(template, p.cert, &private.PublicKey)
	if err != nil {
		return nil, nil, err
	}
	key, err = encodeKey(private)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key, err
}

func (p *pki) sign(template, parent *x509.Certificate, public *ecdsa.PublicKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().AddDate(10, 0, 0)
	return x509.CreateCertificate(rand.Reader, template, parent, public, p.key)
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), err
}

func (p *pki) file(name string) string { return filepath.Join(p.dir, name) }

func (p *pki) write(name string, cert, key []byte) error {
	if err := os.WriteFile(p.file(name+".crt"), cert, 0o644); err != nil {
		return err
	}
	return os.WriteFile(p.file(name+".key"), key, 0o600)
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
