package vdn

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/lab/pki"
	"github.com/fairlead/fairlead/lab/testkit"
)

func TestMain(m *testing.M) {
	if err := kube.Prepare("etcd"); err != nil {
		panic(err)
	}
	testkit.Main(m)
}

// TestFailover kills two of three controllers at a time, every pair in turn, with a real
// etcd of three members that authenticates them by certificate. FAIRLEAD_ROUNDS repeats
// it more often (make test-failover).
func TestFailover(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "fairlead")
	if err := testkit.Build(binary); err != nil {
		t.Fatal(err)
	}
	keys, err := pki.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := keys.Issue(&x509.Certificate{DNSNames: []string{"vdn"}})
	if err == nil {
		err = keys.Write("vdn", cert, key)
	}
	if err != nil {
		t.Fatal(err)
	}
	m := kube.StartEtcd(t, 3, keys)
	rounds := 1
	if text := os.Getenv("FAIRLEAD_ROUNDS"); text != "" {
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Failover(t.Context(), FailoverOptions{
		Binary: binary, Controllers: 3, Clients: 8, Rounds: rounds, Log: os.Stderr,
		Etcd: []string{"--etcd-endpoints", strings.Join(m.URLs, ","), "--etcd-ca", keys.Crt("ca"), "--etcd-cert", keys.Crt("vdn"), "--etcd-key", keys.Key("vdn")},
	})
	if err != nil {
		t.Fatal(err)
	}
	last := len(r.Resumed) - 1
	t.Logf("%d attached, %d detached in %v, %d asked again; %d kills; resumed after %v to %v, median %v; %d double, %d lost",
		r.Attached, r.Detached, r.Elapsed, r.Retries, r.Kills, r.Resumed[0], r.Resumed[last], r.Resumed[last/2], r.Double, r.Lost)
	if r.Double != 0 || r.Lost != 0 || r.Kills != 6*rounds || r.Attached < 9*enough*rounds {
		t.Errorf("%+v", r)
	}
}
