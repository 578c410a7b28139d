package kube

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"net"
	"net/netip"
	"os"

	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/lab/pki"
)

// authority signs all certificates of a cluster.
type authority struct{ *pki.Authority }

func newPKI(dir string) (authority, error) {
	a, err := pki.New(dir)
	return authority{a}, err
}

// server writes the files of a server with addresses that may also be a client, as a
// member of groups.
func (p authority) server(name string, groups []string, addresses ...netip.Addr) error {
	cert, key, err := p.issue(name, groups, addresses...)
	if err != nil {
		return err
	}
	return p.Write(name, cert, key)
}

// serviceAccounts writes the key that signs service account tokens.
func (p authority) serviceAccounts() error {
	_, key, err := pki.NewKey()
	if err != nil {
		return err
	}
	return os.WriteFile(p.Key("sa"), key, 0o600)
}

// issue returns certificate and key, as PEM, of a user in groups, or of a server with
// addresses.
func (p authority) issue(name string, groups []string, addresses ...netip.Addr) (cert, key []byte, err error) {
	template := &x509.Certificate{Subject: pkix.Name{CommonName: name, Organization: groups}}
	if len(addresses) > 0 {
		// These are names of the API server; in other certificates they do no harm.
		template.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
		addresses = append(addresses, netip.MustParsePrefix(ServiceCIDR).Addr().Next())
	}
	for _, a := range addresses {
		template.IPAddresses = append(template.IPAddresses, net.IP(a.AsSlice()))
	}
	return p.Issue(template)
}

// kubeconfig returns the client configuration in kubectl's format.
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
