package config

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// onLoopback returns a load balancer configuration that is valid on every machine.
func onLoopback(t *testing.T) Agent {
	a := DefaultAgent()
	a.Services, a.Interfaces = t.TempDir(), []string{"lo"}
	a.NextHops, a.RouterID = []string{"10.0.0.105", "2001:db8::5"}, "10.0.0.7"
	return a
}

func TestResolve(t *testing.T) {
	a := onLoopback(t)
	a.Peers = []string{"172.16.9.2", "172.16.9.3:1179", "[2001:db8::9]:179@65000"}
	a.PasswordFile = filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(a.PasswordFile, []byte("open sesame\r\nnot this\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := a.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	if !r.Balancer || r.DSR {
		t.Errorf("balancer %v, server %v; want a balancer alone", r.Balancer, r.DSR)
	}
	if r.NextHop4.String() != "10.0.0.105" || r.NextHop6.String() != "2001:db8::5" || r.RouterID.String() != "10.0.0.7" {
		t.Errorf("next hops %v, %v, identifier %v", r.NextHop4, r.NextHop6, r.RouterID)
	}
	want := []Peer{
		{netip.MustParseAddrPort("172.16.9.2:179"), 65021}, {netip.MustParseAddrPort("172.16.9.3:1179"), 65021},
		{netip.MustParseAddrPort("[2001:db8::9]:179"), 65000},
	}
	for i, p := range r.Peers {
		if p != want[i] {
			t.Errorf("peer %d: %v, want %v", i, p, want[i])
		}
	}
	if len(r.Peers) != len(want) || r.Password != "open sesame" {
		t.Errorf("%d peers, password %q", len(r.Peers), r.Password)
	}
}

func TestMistakesAreNamedWithTheirFlag(t *testing.T) {
	for want, change := range map[string]func(*Agent){
		"--manifest-dir: required: set the folder":                            func(a *Agent) { a.Services = "" },
		"cannot be combined with --kubernetes: Services come from one source": func(a *Agent) { a.Kubernetes = true },
		"--kubeconfig: requires":                                              func(a *Agent) { a.Kubeconfig = "admin.conf" },
		"--gateway-api: requires":                                             func(a *Agent) { a.GatewayAPI = true },
		"--role: proxy requires --kubernetes":                                 func(a *Agent) { a.Roles = []string{"proxy"} },
		`--node-port-addresses: "eth0" is not a prefix`:                       func(a *Agent) { a.Roles, a.NodePortAddresses = []string{"proxy"}, []string{"eth0"} },
		"primary cannot be combined with prefixes":                            func(a *Agent) { a.Roles, a.NodePortAddresses = []string{"proxy"}, []string{"10.0.0.0/8", "primary"} },
		`--health-address: "10256" is not an address`:                         func(a *Agent) { a.Roles, a.Health = []string{"proxy"}, "10256" },
		"--sync-max-delay: 1ms is not between":                                func(a *Agent) { a.Roles, a.MaxDelay = []string{"proxy"}, time.Millisecond },
		"--require-class: requires":                                           func(a *Agent) { a.RequireClass = true },
		"--proxy-max-targets: -1 is not between":                              func(a *Agent) { a.Roles, a.MaxServiceTargets = []string{"proxy"}, -1 },
		`--dedicated-service: "web" is not a Service`:                         func(a *Agent) { a.Only = "web" },
		"is a file, not a folder":                                             func(a *Agent) { a.Services = "/dev/null" },
		`--role: "king" is not one of balancer, dsr`:                          func(a *Agent) { a.Roles = []string{"king"} },
		`--dataplane: "lvs" is not one of auto, xdp, ipvs`:                    func(a *Agent) { a.DataPlane = "lvs" },
		`--xdp-mode: "fast" is not one of auto`:                               func(a *Agent) { a.Mode = "fast" },
		"--state-cache-max-age: -1s is less than 0":                           func(a *Agent) { a.Keep = -time.Second },
		"--drain-timeout: -1s is not between":                                 func(a *Agent) { a.DrainTimeout = -time.Second },
		"--graceful-shutdown-period: 25h0m0s is not between":                  func(a *Agent) { a.DrainNotice = 25 * time.Hour },
		`--drain-community: "x" is not a community`:                           func(a *Agent) { a.DrainCommunities = []string{"x"} },
		"--drain-taint: the key of the taint is missing":                      func(a *Agent) { a.DrainTaints = []string{""} },
		`--balancers: "web" is not a Service`:                                 func(a *Agent) { a.Balancers = "web" },
		`--balancers: "a/b/c" is not a Service`:                               func(a *Agent) { a.Balancers = "a/b/c" },
		"--withdraw-grace-period: -1s is not between":                         func(a *Agent) { a.Linger = -time.Second },
		"--syn-threshold: 99 is below 100":                                    func(a *Agent) { a.SYNThreshold = 99 },
		"--resync: 1ms is less than 1s":                                       func(a *Agent) { a.Resync = time.Millisecond },
		"--interface: required: set the interface":                            func(a *Agent) { a.Interfaces = nil },
		"interface eth77 does not exist (there are: lo":                       func(a *Agent) { a.Interfaces = []string{"eth77"} },
		`--next-hop: "ten" is not an IP address`:                              func(a *Agent) { a.NextHops = []string{"ten"} },
		`--router-id: "::1" is not a valid IPv4 address`:                      func(a *Agent) { a.RouterID = "::1" },
		"--router-id: required, because the interface has no IPv4":            func(a *Agent) { a.RouterID, a.Peers = "", []string{"10.0.0.9"} },
		"--local-asn: 0 is not an AS number":                                  func(a *Agent) { a.AS = 0 },
		"--local-asn: 23456 is reserved; private ones are":                    func(a *Agent) { a.AS = 23456 },
		`--router-id: "0.0.0.0" is not a valid IPv4 address`:                  func(a *Agent) { a.RouterID = "0.0.0.0" },
		`--peer: "10.0.0.9:0" is not an address`:                              func(a *Agent) { a.Peers = []string{"10.0.0.9:0"} },
		`--peer: "10.0.0.9@x": "x" is not an AS`:                              func(a *Agent) { a.Peers = []string{"10.0.0.9@x"} },
		"--password-file: open /nonexistent":                                  func(a *Agent) { a.PasswordFile = "/nonexistent" },
		"--password-file: /dev/null: the first line i":                        func(a *Agent) { a.PasswordFile = "/dev/null" },
		"--accept-from: requires":                                             func(a *Agent) { a.AcceptFrom = []string{"lb/balancers"} },
		`--accept-from: "balancers" selects no`:                               func(a *Agent) { a.Roles, a.AcceptFrom = []string{"dsr"}, []string{"balancers"} },
		`--accept-from: "any" selects no Services`:                            func(a *Agent) { a.Roles, a.AcceptFrom = []string{"dsr"}, []string{"lb/x", "any"} },
		"--node-key-file: open /nonexistent":                                  func(a *Agent) { a.NodeKeyFile = "/nonexistent" },
		"--node-key-file: /dev/null: no key":                                  func(a *Agent) { a.NodeKeyFile = "/dev/null" },
		"--require-node-key: requires --node-key-file":                        func(a *Agent) { a.RequireNodeKey = true },
		"--node-key-file: IPVS cannot":                                        func(a *Agent) { a.NodeKeyFile, a.DataPlane = "/dev/null", "ipvs" },
	} {
		a := onLoopback(t)
		change(&a)
		_, err := a.Resolve()
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

func TestAllErrorsAreReportedTogether(t *testing.T) {
	a := onLoopback(t)
	a.Mode, a.AS = "fast", 0
	_, err := a.Resolve()
	if err == nil || !strings.Contains(err.Error(), "--xdp-mode") || !strings.Contains(err.Error(), "--local-asn") {
		t.Errorf("error %v does not name both flags", err)
	}
}

// TestSendersAndKeys uses the flags of a backend node that checks senders.
func TestSendersAndKeys(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("k", 32)+"\n"+strings.Repeat("m", 32)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := Agent{Services: t.TempDir(), Roles: []string{"dsr"}, Mode: "auto", Resync: time.Second}
	a.AcceptFrom, a.NodeKeyFile, a.RequireNodeKey = []string{"lb/balancers", "lb/fairlead.io/balancers=true"}, key, true
	r, err := a.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	if len(r.AcceptFrom) != 2 || r.AcceptFrom[1].Label != "fairlead.io/balancers" || len(r.NodeAuth.Keys) != 2 || !r.NodeAuth.Require {
		t.Errorf("accepted %v, keys %v", r.AcceptFrom, r.NodeAuth)
	}
	for _, from := range [][]string{nil, {AnySender}} {
		a.AcceptFrom, a.NodeKeyFile, a.RequireNodeKey = from, "", false
		if r, err := a.Resolve(); err != nil || len(r.AcceptFrom) > 0 || len(r.NodeAuth.Keys) > 0 {
			t.Errorf("%v: %+v, %v", from, r, err)
		}
	}
}

// TestServerRoleNeedsNoBalancersSettings: the DSR agent neither advertises routes nor
// receives packets for VIPs.
func TestServerRoleNeedsNoBalancersSettings(t *testing.T) {
	a := Agent{Services: t.TempDir(), Roles: []string{"dsr"}, Mode: "auto", Resync: time.Second}
	r, err := a.Resolve()
	if err != nil || !r.DSR || r.Balancer {
		t.Errorf("%+v, %v", r, err)
	}
}
