package config

import (
	"crypto/x509"
	"os"
	"testing"

	"github.com/fairlead/fairlead/lab/pki"
)

// TestVDNCertificateIsReloaded checks that a renewed certificate is used without a
// restart.
func TestVDNCertificateIsReloaded(t *testing.T) {
	a, err := pki.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	issue := func(name string) {
		t.Helper()
		cert, key, err := a.Issue(&x509.Certificate{DNSNames: []string{name}})
		if err == nil {
			err = a.Write("vdn", cert, key)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	issue("first")
	r, err := VDN{Data: "/x", Domain: "local", Listen: "192.0.2.1:7473", TLSCert: a.Crt("vdn"), TLSKey: a.Key("vdn")}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	shows := func(want string) {
		t.Helper()
		if c, err := r.TLS.GetCertificate(nil); err != nil || c.Leaf.DNSNames[0] != want {
			t.Errorf("got %+v, %v, want that of %s", c, err, want)
		}
	}
	shows("first")
	issue("second")
	shows("second")
	if err := os.WriteFile(a.Key("vdn"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	shows("second")
}
