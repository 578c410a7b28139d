package config

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

// load gives cfg after a file's text (none where empty) and flags.
func load[C Config](t *testing.T, cfg C, text string, args ...string) (C, error) {
	t.Helper()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	finish := Flags(fs, cfg)
	if text != "" {
		path := filepath.Join(t.TempDir(), "fairlead.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config", path)
	}
	if err := fs.Parse(args); err != nil {
		return cfg, err
	}
	return cfg, finish()
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func TestFlagsWinOverFileOverDefaults(t *testing.T) {
	got, err := load(t, DefaultAgent(), `
node: node1
interfaces: [eth0, eth1]
peers: [127.0.0.9]
nextHops: [10.0.0.105, "2001:db8::5"]
routerID: 10.0.0.7
linger: 1500ms
bfd: false
`, "--interface", "eth7", "--peer", "127.0.0.1,127.0.0.2", "--peer", "127.0.0.3", "--role", "balancer,server")
	if err != nil {
		t.Fatal(err)
	}
	want := DefaultAgent()
	want.Node, want.Interfaces, want.Linger, want.BFD = "node1", []string{"eth7"}, 1500*time.Millisecond, false
	want.Roles = []Role{Balancer, Server}
	want.Peers = []netip.Addr{addr("127.0.0.1"), addr("127.0.0.2"), addr("127.0.0.3")}
	want.NextHops, want.RouterID = []netip.Addr{addr("10.0.0.105"), addr("2001:db8::5")}, addr("10.0.0.7")
	if d := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if got.NextHop(false) != addr("10.0.0.105") || got.NextHop(true) != addr("2001:db8::5") {
		t.Errorf("next hops %v, %v", got.NextHop(false), got.NextHop(true))
	}
}

func TestWhatIsLeftOpenIsFoundOut(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	a, err := load(t, DefaultAgent(), "", "--interface", "lo", "--peer", "127.0.0.9")
	if err != nil {
		t.Fatal(err)
	}
	own := addr("127.0.0.1") // what the kernel uses toward its loopback
	if a.Node != host || a.RouterID != own || a.NextHop(false) != own || a.NextHop(true).IsValid() {
		t.Errorf("node %q, identifier %v, next hops %v", a.Node, a.RouterID, a.NextHops)
	}
	r, err := load(t, DefaultRouter(), "", "--peer", "127.0.0.9")
	if err != nil || r.RouterID != own {
		t.Errorf("router: identifier %v, error %v", r.RouterID, err)
	}
	rr, err := load(t, DefaultReflector(), "", "--neighbours", "172.16.0.0/16", "--router", "127.0.0.9")
	if err != nil || rr.RouterID != own {
		t.Errorf("reflector: identifier %v, error %v", rr.RouterID, err)
	}
}

// TestWrongFilesAreRefused: each error names the line, the setting and the mend.
func TestWrongFilesAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"interfaces: [lo]\ninterface: lo\n":               `:2: interface: no such setting: there are node, socket`,
		"interfaces: lo":                                  `:1: interfaces: a list is expected, as in [lo]`,
		"interfaces: [lo]\nnextHops:\n- 10.0.0.5\n- ten":  `:2: nextHops: line 4: "ten" is no address`,
		"interfaces: [lo]\nas: many":                      `:2: as: "many" is no number`,
		"interfaces: [lo]\nas: -1":                        `:2: as: "-1" is no number`,
		"interfaces: [lo]\nresync: 5":                     `:2: resync: "5" is no duration`,
		"interfaces: [lo]\nbfd: {on: true}":               `:2: bfd: one bool is expected`,
		"interfaces: [lo]\nsocket:":                       `:2: socket: "" is no name`,
		"node: a\nnode: b\ninterfaces: [lo]":              `:2: node: is there twice`,
		"- interfaces":                                    `:1: expected settings`,
		"interfaces: [lo":                                 `yaml: line 1`,
		"interfaces: [lo]\nlogLevel: loud":                `:2: logLevel: "loud" is no level`,
		"interfaces: [eth0/1]":                            `interfaces: "eth0/1" is no device's name`,
		"roles: [balancer]":                               `interfaces: none: a balancer needs`,
		"roles: [king]":                                   `roles: "king" is none of balancer, server`,
		"roles: []":                                       `roles: none`,
		"interfaces: [lo]\nxdpMode: fast":                 `xdpMode: "fast" is none of auto, native, generic`,
		"interfaces: [lo]\nresync: 0s":                    `resync: 0s is not positive`,
		"interfaces: [lo]\nlinger: -1s":                   `linger: -1s is negative`,
		"interfaces: [lo]\nnextHops: [10.0.0.1,10.0.0.2]": `nextHops: two of one family`,
		"interfaces: [lo]\npeers: [127.0.0.1,127.0.0.1]":  `peers: 127.0.0.1 is there twice`,
		"interfaces: [lo]\npeers: [224.0.0.5]\nnextHops: [10.0.0.1]\nrouterID: 10.0.0.1": `peers: 224.0.0.5 is nobody's address`,
		"interfaces: [lo]\npeers: [127.0.0.1]\nas: 0":                                    `as: 0 is no AS number`,
		"interfaces: [lo]\npeers: [127.0.0.1]\nrouterID: '2001:db8::1'":                  `routerID: 2001:db8::1 is no IPv4 address`,
		"interfaces: [lo]\npeers: ['::1']":                                               `routerID: ::1 is no IPv4 address, which BGP identifiers are: pass --router-id`,
		"interfaces: [lo]\npeers: [127.0.0.1]\npasswordFile: /nonexistent/secret":        `passwordFile: open /nonexistent/secret`,
		"interfaces: [lo]\npeers: [127.0.0.1]\npasswordFile: /dev/null":                  `passwordFile: /dev/null holds 0 bytes`,
	} {
		_, err := load(t, DefaultAgent(), text)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q:\n got %v\nwant %s", text, err, want)
		}
	}
}

func TestAllMistakesAreToldAtOnce(t *testing.T) {
	_, err := load(t, DefaultAgent(), "one: 1\ntwo: 2")
	if err == nil || !strings.Contains(err.Error(), ":1: one") || !strings.Contains(err.Error(), ":2: two") {
		t.Errorf("error %v", err)
	}
}

func TestWrongReflectorsAndRoutersAreRefused(t *testing.T) {
	for want, c := range map[string]struct {
		cfg  Config
		args string
	}{
		"neighbours: none":           {DefaultReflector(), "--router-id=10.0.0.1"},
		"did you mean 172.16.0.0/16": {DefaultReflector(), "--router-id=10.0.0.1 --neighbours=172.16.9.1/16"},
		"peers: none":                {DefaultRouter(), "--router-id=10.0.0.1"},
		"table: 255 is not a table":  {DefaultRouter(), "--router-id=10.0.0.1 --peer=10.0.0.2 --table=255"},
		`"ten" is no address`:        {DefaultRouter(), "--peer=ten"},
		"no such file":               {DefaultRouter(), "--config=/nonexistent/router.yaml"},
		"socket: empty":              {DefaultRouter(), "--config=/dev/null --router-id=10.0.0.1 --peer=10.0.0.2"},
	} {
		if r, ok := c.cfg.(*Router); ok && strings.HasPrefix(want, "socket") {
			r.Socket = ""
		}
		if _, err := load(t, c.cfg, "", strings.Fields(c.args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", c.args, err, want)
		}
	}
}

func TestPassword(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte("open sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := (BGP{PasswordFile: path}).Password(); err != nil || got != "open sesame" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestEverySettingIsNamedAndExplained, and the flag is the name as flags are
// written, in the singular for lists.
func TestEverySettingIsNamedAndExplained(t *testing.T) {
	for _, cfg := range []Config{DefaultAgent(), DefaultReflector(), DefaultRouter()} {
		fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
		Flags(fs, cfg) // panics on a flag that is there twice
		for _, s := range settingsOf(reflect.ValueOf(cfg).Elem()) {
			if s.name == "" || s.flag == "" || s.help == "" || fs.Lookup(s.flag) == nil {
				t.Errorf("%T: setting %+v lacks a name, a flag or help", cfg, s)
			}
		}
	}
}
