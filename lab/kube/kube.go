// Package kube runs a real Kubernetes for tests: its own etcd and kube-apiserver, built
// from the Go module proxy, on loopback. It can stop, pause and slow them, and fill them
// with many Services faster than through the API.
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
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/lab/netns"
)

// ServiceCIDR is the range of Service addresses.
const ServiceCIDR = "10.96.0.0/12"

// startLimit is how long a program may take to become ready: a server with 50,000
// Services needs 14 s on an idle machine.
const startLimit = 3 * time.Minute

// Options configure a cluster.
type Options struct {
	// Flags are additional flags of kube-apiserver; they override the defaults.
	Flags []string
	// Seed, if not nil, is written to etcd before kube-apiserver starts.
	Seed *Seed
	// Host, if not nil, is the network namespace in which both run and the server is
	// queried; Address is the server's address there.
	Host    *netns.NS
	Address netip.Addr
	// EtcdRelay puts a Relay between the server and etcd.
	EtcdRelay bool
	// Logs is the folder for the programs' logs. If empty, they are with their data.
	Logs string
}

// Cluster is a control plane: etcd, and kube-apiserver in front of it.
type Cluster struct {
	// Config is an administrator's client configuration: protobuf, without a rate limit.
	Config *rest.Config
	// Kubeconfig is a file with the same access.
	Kubeconfig string
	// APIServer and Etcd are the programs; stop the server before etcd.
	APIServer, Etcd *Program
	// EtcdRelay is between them if Options request it, otherwise nil.
	EtcdRelay *Relay

	dir     string
	opts    Options
	place   *Place
	pki     authority
	address netip.AddrPort // of the server
	etcd    etcd
}

// Start runs a control plane until the test ends, and fails the test if it does not
// become ready. Pods can be created but do not run; they need no service account, because
// no controller creates any.
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
			t.Logf("last output of kube-apiserver:\n%s", c.APIServer.LastWords())
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// New runs a control plane with its data in a folder, which stays. If it fails, it leaves
// nothing running.
func New(ctx context.Context, dir string, o Options) (*Cluster, error) {
	if !o.Address.IsValid() {
		o.Address = loopback
	}
	if o.Logs == "" {
		o.Logs = dir
	}
	c := &Cluster{dir: dir, opts: o}
	err := c.prepare()
	if err == nil {
		err = c.start(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("kube: %w", err), c.Close())
	}
	return c, nil
}

// loopback is the default address of a server.
var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// prepare generates keys and command lines.
func (c *Cluster) prepare() error {
	bin, err := Binaries("etcd", "kube-apiserver")
	if err != nil {
		return err
	}
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	c.address = netip.AddrPortFrom(c.opts.Address, ports[0])
	if c.pki, err = newPKI(filepath.Join(c.dir, "pki")); err != nil {
		return err
	}
	if err := c.credentials(); err != nil {
		return err
	}
	if c.place, err = NewPlace(c.enter()); err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(c.Config)
	if err != nil {
		return err
	}
	c.etcd = etcd{fmt.Sprintf("http://127.0.0.1:%d", ports[1]), &http.Client{Transport: &http.Transport{DialContext: c.Dial}}}
	c.Etcd = c.Program(bin, "etcd", c.etcd.healthy, c.etcdFlags(fmt.Sprintf("http://127.0.0.1:%d", ports[2]))...)
	ready := func(ctx context.Context) error { return serves(ctx, client, "https://"+c.address.String()) }
	etcd := c.etcd.url
	if c.opts.EtcdRelay {
		if etcd, err = c.relayEtcd(); err != nil {
			return err
		}
	}
	c.APIServer = c.Program(bin, "kube-apiserver", ready, c.apiServerFlags(etcd)...)
	return nil
}

// enter returns a function that moves a thread into the programs' namespace, or nil for
// the current one.
func (c *Cluster) enter() func() error {
	ns := c.opts.Host
	if ns == nil {
		return nil
	}
	return func() error { return unix.Setns(ns.FD(), unix.CLONE_NEWNET) }
}

// relayEtcd creates the relay and returns its URL.
func (c *Cluster) relayEtcd() (string, error) {
	var l net.Listener
	err := c.place.Do(func() (err error) {
		l, err = net.Listen("tcp4", "127.0.0.1:0")
		return err
	})
	if err != nil {
		return "", err
	}
	c.EtcdRelay = NewRelay(l, func() (net.Conn, error) {
		return c.Dial(context.Background(), "tcp4", strings.TrimPrefix(c.etcd.url, "http://"))
	})
	return "http://" + l.Addr().String(), nil
}

// credentials creates those of the administrator and of the server.
func (c *Cluster) credentials() (err error) {
	const group = "system:masters"
	if c.Config, err = c.ConfigFor("admin", group); err != nil {
		return err
	}
	if c.Kubeconfig, err = c.KubeconfigFor("admin", group); err != nil {
		return err
	}
	if err := c.pki.serviceAccounts(); err != nil {
		return err
	}
	return c.pki.server("kube-apiserver", []string{group}, c.opts.Address)
}

// Program returns another program that runs with the server, from a folder of binaries.
// It is not started yet.
func (c *Cluster) Program(folder, name string, ready func(context.Context) error, flags ...string) *Program {
	return &Program{
		Place: c.place,
		Argv:  append([]string{filepath.Join(folder, name)}, flags...),
		Log:   filepath.Join(c.opts.Logs, name+".log"),
		Ready: ready,
	}
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

// Close stops all programs; data and logs stay.
func (c *Cluster) Close() error {
	// The server first: without its etcd it would take a minute to exit.
	err := errors.Join(c.APIServer.Stop(), c.Etcd.Stop())
	if c.EtcdRelay != nil {
		err = errors.Join(err, c.EtcdRelay.Close())
	}
	if c.place != nil {
		c.place.Close()
	}
	return err
}

// etcdFlags optimize for speed: what a test writes need not survive a power failure.
func (c *Cluster) etcdFlags(peer string) []string {
	return []string{
		"--data-dir", filepath.Join(c.dir, "etcd"), "--unsafe-no-fsync", "--log-level", "warn",
		"--listen-client-urls", c.etcd.url, "--advertise-client-urls", c.etcd.url,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default=" + peer,
		"--quota-backend-bytes", "8589934592", "--max-txn-ops", "1024", "--max-request-bytes", "16777216",
	}
}

func (c *Cluster) apiServerFlags(etcd string) []string {
	flags := []string{
		"--etcd-servers", etcd,
		"--bind-address", c.address.Addr().String(), "--advertise-address", c.address.Addr().String(),
		"--secure-port", fmt.Sprint(c.address.Port()),
		"--tls-cert-file", c.pki.Crt("kube-apiserver"), "--tls-private-key-file", c.pki.Key("kube-apiserver"),
		"--client-ca-file", c.pki.Crt("ca"),
		"--kubelet-client-certificate", c.pki.Crt("kube-apiserver"), "--kubelet-client-key", c.pki.Key("kube-apiserver"),
		"--kubelet-certificate-authority", c.pki.Crt("ca"), "--kubelet-preferred-address-types", "InternalIP",
		"--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", c.pki.Key("sa"), "--service-account-signing-key-file", c.pki.Key("sa"),
		"--authorization-mode", "Node,RBAC", "--allow-privileged=true",
		"--service-cluster-ip-range", ServiceCIDR,
	}
	if c.address.Addr().IsLoopback() {
		// The Service kubernetes must not have a loopback endpoint.
		flags = append(flags, "--endpoint-reconciler-type", "none")
	}
	return append(flags, c.opts.Flags...)
}

// ConfigFor returns the client configuration of a user in groups, with their rights by
// RBAC.
func (c *Cluster) ConfigFor(user string, groups ...string) (*rest.Config, error) {
	cert, key, err := c.pki.issue(user, groups)
	if err != nil {
		return nil, fmt.Errorf("kube: user %s: %w", user, err)
	}
	config := &rest.Config{
		Host:            "https://" + c.address.String(),
		TLSClientConfig: rest.TLSClientConfig{CAData: c.pki.PEM, CertData: cert, KeyData: key},
		ContentConfig: rest.ContentConfig{
			ContentType:        "application/vnd.kubernetes.protobuf",
			AcceptContentTypes: "application/vnd.kubernetes.protobuf,application/json",
		},
		QPS: -1,
	}
	if c.opts.Host != nil {
		config.Dial = c.Dial
	}
	return config, nil
}

// KubeconfigFor writes the result of ConfigFor to a file and returns its name.
func (c *Cluster) KubeconfigFor(user string, groups ...string) (string, error) {
	config, err := c.ConfigFor(user, groups...)
	if err != nil {
		return "", err
	}
	path := filepath.Join(c.dir, strings.ReplaceAll(user, ":", "-")+".kubeconfig")
	return path, os.WriteFile(path, kubeconfig(config), 0o600)
}

// Compact removes etcd's history: requests for older revisions get 410 Gone. A running
// server still has its own watch cache: if watches should get 410 too, stop it before and
// start it afterwards.
func (c *Cluster) Compact(ctx context.Context) error { return c.etcd.compact(ctx) }

// Certificate writes certificate and key of a server with addresses (or of a client with
// that name) and returns the file names.
func (c *Cluster) Certificate(name string, addresses ...netip.Addr) (cert, key string, err error) {
	err = c.pki.server(name, nil, addresses...)
	return c.pki.Crt(name), c.pki.Key(name), err
}

// Authority returns the files of the authority that signed all certificates.
func (c *Cluster) Authority() (cert, key string) { return c.pki.Crt("ca"), c.pki.Key("ca") }

// AccountKey returns the file of the key that signs service account tokens.
func (c *Cluster) AccountKey() string { return c.pki.Key("sa") }
