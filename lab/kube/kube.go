// Package kube runs a real Kubernetes for tests: its own etcd and
// kube-apiserver, built from the Go module proxy, on loopback. It stops, pauses
// and slows them where a test asks what happens then, and fills them with very
// many Services faster than the API itself could. What is tested is the business
// of those who use it.
//
//	func TestMain(m *testing.M) { kube.Main(m) }
//
//	func TestSource(t *testing.T) {
//		c := kube.Start(t, kube.Options{})
//		client, err := kubernetes.NewForConfig(c.Config)
package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// ServiceCIDR is where Services get their addresses from.
const ServiceCIDR = "10.96.0.0/12"

// startLimit is how long a program may take until it answers: a server with
// 50,000 Services needs 14 s on a quiet machine.
const startLimit = 3 * time.Minute

// Options say what is run.
type Options struct {
	// Flags are further flags of kube-apiserver; they win over those that are
	// given anyway.
	Flags []string
	// Seed, where not nil, is in etcd before kube-apiserver starts.
	Seed *Seed
}

// Cluster is a control plane: etcd, and kube-apiserver in front of it.
type Cluster struct {
	// Config is an administrator's way to the server: protobuf, no limit of
	// requests.
	Config *rest.Config
	// Kubeconfig is a file that leads there, too.
	Kubeconfig string
	// APIServer and Etcd are the programs; stop the server before etcd.
	APIServer, Etcd *Program

	dir     string
	opts    Options
	pki     *pki
	address netip.AddrPort // the server's
	etcd    etcd
}

// Start runs a control plane until the test ends, and ends the test where it
// does not come up. Pods can be made, but run nowhere: no service account is asked
// for, as nobody makes any.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	o.Flags = append([]string{"--disable-admission-plugins=ServiceAccount"}, o.Flags...)
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	c, err := New(ctx, t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("kube-apiserver said last:\n%s", c.APIServer.lastWords())
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// New runs a control plane whose data and logs are in a folder, which stays.
// Nothing is left running where it fails.
func New(ctx context.Context, dir string, o Options) (*Cluster, error) {
	c := &Cluster{dir: dir, opts: o}
	if err := c.prepare(); err != nil {
		return nil, fmt.Errorf("kube: %w", err)
	}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("kube: %w", err), c.Close())
	}
	return c, nil
}

// prepare makes keys and command lines.
func (c *Cluster) prepare() error {
	bin, err := binaries("etcd", "kube-apiserver")
	if err != nil {
		return err
	}
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	c.address = netip.AddrPortFrom(loopback, ports[0])
	if c.pki, err = newPKI(filepath.Join(c.dir, "pki"), loopback); err != nil {
		return err
	}
	if c.Config, err = c.ConfigFor("admin", "system:masters"); err != nil {
		return err
	}
	if c.Kubeconfig, err = c.KubeconfigFor("admin", "system:masters"); err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(c.Config)
	if err != nil {
		return err
	}
	c.etcd = etcd{url: fmt.Sprintf("http://127.0.0.1:%d", ports[1])}
	c.Etcd = &Program{
		argv:  append([]string{filepath.Join(bin, "etcd")}, c.etcdFlags(fmt.Sprintf("http://127.0.0.1:%d", ports[2]))...),
		log:   filepath.Join(c.dir, "etcd.log"),
		ready: c.etcd.healthy,
	}
	c.APIServer = &Program{
		argv:  append([]string{filepath.Join(bin, "kube-apiserver")}, c.apiServerFlags()...),
		log:   filepath.Join(c.dir, "kube-apiserver.log"),
		ready: func(ctx context.Context) error { return serves(ctx, client, "https://"+c.address.String()) },
	}
	return nil
}

func (c *Cluster) start(ctx context.Context) error {
	if err := c.Etcd.Start(ctx); err != nil {
		return err
	}
	if c.opts.Seed != nil {
		if err := c.Seed(ctx, *c.opts.Seed); err != nil {
			return err
		}
	}
	return c.APIServer.Start(ctx)
}

// Close stops what runs; data and logs stay.
func (c *Cluster) Close() error {
	// The server first: without its etcd it would not end for a minute.
	return errors.Join(c.APIServer.Stop(), c.Etcd.Stop())
}

// serves tells whether the server answers, and has made what every cluster has
// before anybody asks for it.
func serves(ctx context.Context, client *http.Client, url string) error {
	for _, path := range []string{"/readyz", "/api/v1/namespaces/kube-system", "/api/v1/namespaces/default/services/kubernetes"} {
		if err := get(ctx, client, url+path); err != nil {
			return err
		}
	}
	return nil
}

func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, answer.Status)
	}
	return nil
}

// etcdFlags are for speed: what a test writes need not outlive a power cut.
func (c *Cluster) etcdFlags(peer string) []string {
	return []string{
		"--data-dir", filepath.Join(c.dir, "etcd"), "--unsafe-no-fsync", "--log-level", "warn",
		"--listen-client-urls", c.etcd.url, "--advertise-client-urls", c.etcd.url,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default=" + peer,
		"--quota-backend-bytes", "8589934592", "--max-txn-ops", "1024", "--max-request-bytes", "16777216",
	}
}

func (c *Cluster) apiServerFlags() []string {
	return append([]string{
		"--etcd-servers", c.etcd.url,
		"--bind-address", c.address.Addr().String(), "--advertise-address", c.address.Addr().String(),
		"--secure-port", fmt.Sprint(c.address.Port()),
		"--tls-cert-file", c.pki.file("apiserver.crt"), "--tls-private-key-file", c.pki.file("apiserver.key"),
		"--client-ca-file", c.pki.file("ca.crt"),
		"--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", c.pki.file("sa.key"), "--service-account-signing-key-file", c.pki.file("sa.key"),
		"--authorization-mode", "Node,RBAC", "--allow-privileged=true",
		"--service-cluster-ip-range", ServiceCIDR,
		"--cert-dir", filepath.Join(c.dir, "pki"),
		"--endpoint-reconciler-type", "none",
	}, c.opts.Flags...)
}

// ConfigFor leads to the server as a user in groups, with the rights that these
// have by RBAC.
func (c *Cluster) ConfigFor(user string, groups ...string) (*rest.Config, error) {
	cert, key, err := c.pki.client(user, groups)
	if err != nil {
		return nil, fmt.Errorf("kube: user %s: %w", user, err)
	}
	return &rest.Config{
		Host: "https://" + c.address.String(),
		TLSClientConfig: rest.TLSClientConfig{
			CAData: c.pki.ca, CertData: cert, KeyData: key,
		},
		ContentConfig: rest.ContentConfig{
			ContentType:        "application/vnd.kubernetes.protobuf",
			AcceptContentTypes: "application/vnd.kubernetes.protobuf,application/json",
		},
		QPS: -1,
	}, nil
}

// KubeconfigFor writes what ConfigFor gives to a file, and names it.
func (c *Cluster) KubeconfigFor(user string, groups ...string) (string, error) {
	config, err := c.ConfigFor(user, groups...)
	if err != nil {
		return "", err
	}
	path := filepath.Join(c.dir, user+".kubeconfig")
	return path, os.WriteFile(path, kubeconfig(config), 0o600)
}

// Compact takes etcd's history away: who asks for what was before gets 410 Gone.
// A running server still has what it remembers itself (its watch cache): stop it
// before and start it afterwards where watches are to get 410, too.
func (c *Cluster) Compact(ctx context.Context) error { return c.etcd.compact(ctx) }
