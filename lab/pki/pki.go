// Package pki is a certificate authority for labs and tests. Its files, and those of the
// certificates that it issues, are in one folder: NAME.crt and NAME.key.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// Authority signs certificates.
type Authority struct {
	// PEM is its own certificate, which is also in ca.crt.
	PEM []byte

	dir     string
	cert    *x509.Certificate
	private *ecdsa.PrivateKey
}

// New creates an authority, and the folder.
func New(dir string) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "fairlead-test-ca"},
		IsCA:    true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	private, key, err := NewKey()
	if err != nil {
		return nil, err
	}
	a := &Authority{dir: dir, private: private, cert: template}
	der, err := a.sign(template, &private.PublicKey)
	if err != nil {
		return nil, err
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	a.PEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a, a.Write("ca", a.PEM, key)
}

// Issue returns certificate and key, as PEM, with the subject and names of a template,
// for servers and clients. It is valid from an hour ago on, for ten years unless template
// sets another time.
func (a *Authority) Issue(template *x509.Certificate) (cert, key []byte, err error) {
	private, key, err := NewKey()
	if err != nil {
		return nil, nil, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	der, err := a.sign(template, &private.PublicKey)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key, err
}

func (a *Authority) sign(template *x509.Certificate, public *ecdsa.PublicKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-time.Hour)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().AddDate(10, 0, 0)
	}
	return x509.CreateCertificate(rand.Reader, template, a.cert, public, a.private)
}

// NewKey generates a key and returns it together with its PEM.
func NewKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	return key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), err
}

// Crt is the file of a certificate.
func (a *Authority) Crt(name string) string { return filepath.Join(a.dir, name+".crt") }

// Key is the file of a key.
func (a *Authority) Key(name string) string { return filepath.Join(a.dir, name+".key") }

// Write writes both files of a name.
func (a *Authority) Write(name string, cert, key []byte) error {
	if err := os.WriteFile(a.Crt(name), cert, 0o644); err != nil {
		return fmt.Errorf("certificate %s: %w", name, err)
	}
	return os.WriteFile(a.Key(name), key, 0o600)
}
