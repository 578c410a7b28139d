package status

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/lab/testkit"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// eleven is the current time of all golden files.
var eleven = time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return eleven.Add(-d) }

// balancer is a load balancer with a value for everything.
func balancer() Status {
	return Status{
		Version: "v0.1.0", Kernel: "Linux 6.12.48", Node: "node1", Role: "balancer",
		Started: ago(26*time.Hour + 5*time.Minute), Time: eleven,
		DataPlane: &dataplane.Description{
			Kind: "xdp", Attached: []string{"eth0: native", "eth1: generic: driver has no native XDP"},
			Warnings: []string{"chains: all 4 were in use when slots needed to list earlier backends: 2 times one was left out, whose connections may break (MaxChains)"},
			Drops:    map[string]uint64{"ttl-exceeded": 3, "no-backend": 0, "fragment": 12},
		},
		Services: []Service{
			{ID: "default/web", ForwardingMode: service.Tunnel, Scheduler: service.Maglev, MaglevTableSize: 16381, Check: service.CheckHTTP,
				Origin: "web.yaml:1", Frontends: []Frontend{web()}},
			{ID: "edge/dns", ForwardingMode: service.FullNAT, Scheduler: service.RoundRobin, Check: service.CheckNone, Origin: "dns.yaml:1",
				Frontends: []Frontend{{VIP: netip.MustParseAddr("2001:db8::53"), Port: 53, Protocol: "UDP", State: plan.NoEndpoints,
					Reason: "no EndpointSlice names a ready endpoint"}}},
		},
		Routes: []Route{
			{Prefix: netip.MustParsePrefix("10.1.1.0/24"), NextHop: netip.MustParseAddr("10.0.0.105"), Advertised: true, Since: ago(90 * time.Second),
				Attributes: route.Attributes{Communities: "65000:1 no-export", Weight: 3, Peers: "tor-1 tor-2"}},
			{Prefix: netip.MustParsePrefix("2001:db8::53/128"), NextHop: netip.MustParseAddr("2001:db8:f::5"),
				Reason: "edge/dns UDP [2001:db8::53]:53 is not served: no-endpoints"},
		},
		Peers: []advertise.Peer{
			{Name: "tor-1", Address: "172.16.9.2", AS: 65021, State: "established", Since: ago(25 * time.Hour), BFD: "up", Received: 2, Sent: 1,
				UpdatesReceived: 9, UpdatesSent: 7, Flaps: 1},
			{Address: "172.16.9.3", AS: 65021, State: "active", LastError: "connection refused"},
		},
		Problems: []problem.Problem{{Object: "Service default/old", Where: "old.yaml:7", Field: "spec.ports[0].port",
			Message: "70000 is no port: use 1 to 65535"}},
	}
}

func web() Frontend {
	return Frontend{
		VIP: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: "TCP", PortName: "http", State: plan.Active,
		Counts: dataplane.Counts{Packets: 123456, Bytes: 98765432, Flows: 4321},
		Backends: []Backend{
			{Address: netip.MustParseAddrPort("172.16.1.10:8080"), Name: "web-1", Node: "node1", Weight: 1, Health: "up",
				Since: ago(3 * time.Hour), InService: true, ProgrammedWeight: 2, Counts: dataplane.Counts{Packets: 61000, Bytes: 49000000, Flows: 2161}},
			{Address: netip.MustParseAddrPort("172.16.2.10:8080"), Name: "web-2", Node: "node2", Weight: 1, Health: "down",
				Since: ago(1500 * time.Millisecond), LastError: "GET /: connection refused\n(2 in a row)"},
			{Address: netip.MustParseAddrPort("172.16.3.10:8080"), Name: "web-3", Weight: 0, Health: "up",
				Since: ago(49 * time.Hour), Draining: true, InService: true, Counts: dataplane.Counts{Packets: 62456, Bytes: 900, Flows: 2160}},
		},
	}
}

// server is a node with only the DSR agent.
func server() Status {
	s := balancer()
	s.Role, s.DataPlane, s.Routes, s.Peers, s.Problems = "dsr", nil, nil, nil, nil
	s.DSRAgent = &DSRAgent{
		Attached: []string{"eth0: tcx: packets that come in", "veth1: tcx: servers behind it"}, Flows: 12,
		Entries: []Entry{{VIP: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: "TCP", ForwardingMode: service.Tunnel,
			Server: netip.MustParseAddrPort("172.16.1.10:8080"), Flows: 12}},
		Counters:      map[string]uint64{"tunnel-delivered": 61000, "restored-straight": 70000, "passed-fragment": 0},
		ChecksSenders: true, Senders: []netip.Addr{netip.MustParseAddr("10.0.0.105"), netip.MustParseAddr("10.0.0.106")},
	}
	s.NodeKeys = &NodeKeys{Sends: "5f", Accepts: []string{"5f", "a3"}, Required: true}
	f := &s.Services[0].Frontends[0]
	f.Counts = dataplane.Counts{}
	for i := range f.Backends {
		b := &f.Backends[i]
		*b = Backend{Address: b.Address, Name: b.Name, Node: b.Node, Weight: b.Weight, Health: "unchecked", Draining: b.Draining}
		b.Local = &Local{Reason: "routed through eth0 to another node"}
	}
	f.Backends[0].Local = &Local{Here: true, Flows: 12}
	return s
}

func routing() Status {
	s := routed(RoleRouter, fault("10.1.2.0/24", errors.New("next hop 10.9.9.9: no route to it"))).Gather(eleven)
	s.Peers = balancer().Peers
	return s
}

// TestTableOptions prints tables without headers and in color; a cell that would move the
// cursor is replaced in either.
func TestTableOptions(t *testing.T) {
	v := Sheet{Lines: []string{"a\x1b[2J"}, Head: []string{"NAME", "STATE", "REASON"}, Rows: [][]string{{"x\x1b", "up", ""}, {"longer", "down", "why not"}}}
	for want, o := range map[string]Output{
		"a\ufffd[2J\nx\ufffd      up\nlonger  down  why not\n":                                                       {Format: Table, NoHeaders: true},
		"a\ufffd[2J\nNAME    STATE  REASON\nx\ufffd      \x1b[32mup\x1b[0m\nlonger  \x1b[31mdown\x1b[0m   why not\n": {Format: Wide, Color: true},
	} {
		var b bytes.Buffer
		if err := Print(&b, v, o); err != nil || b.String() != want {
			t.Errorf("%+v: %v\n%q\nwant\n%q", o, err, &b, want)
		}
	}
}

func reflector() Status { return routed(RoleReflector).Gather(eleven) }

// draining is a load balancer that is draining.
func draining() Status {
	s := balancer()
	s.Drain = &Drain{Stage: plan.Withdrawn, Reasons: []string{"Node node1 is cordoned (kubectl uncordon node1)"}, Since: ago(4 * time.Second),
		Entered: ago(2 * time.Second), Flows: 17}
	s.Routes = []Route{{Prefix: netip.MustParsePrefix("10.1.1.0/24"), Rule: plan.RuleDraining,
		Reason: "this load balancer is draining: Node node1 is cordoned (kubectl uncordon node1)"}}
	return s
}

func views(s Status) map[string]View {
	return map[string]View{
		"status": s.Overview(), "services": s.ServicesView(), "backends": s.BackendsView(), "routes": s.RoutesView(), "peers": s.PeersView(),
	}
}

func TestGolden(t *testing.T) {
	for who, s := range map[string]Status{"balancer": balancer(), "dsr": server(), "router": routing(), "reflector": reflector(), "draining": draining(), "empty": {Version: "devel", Kernel: "Linux 6.1", Node: "n", Role: "balancer", Started: eleven, Time: eleven}} {
		for name, v := range views(s) {
			for _, f := range Formats {
				t.Run(who+"/"+name+"/"+string(f), func(t *testing.T) {
					var got bytes.Buffer
					if err := Write(&got, v, f); err != nil {
						t.Fatal(err)
					}
					golden(t, who+"-"+name+"."+string(f), got.String())
				})
			}
		}
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	testkit.Golden(t, name, got, *update)
}

// TestYAMLSaysWhatJSONSays decodes both formats and compares the results.
func TestYAMLSaysWhatJSONSays(t *testing.T) {
	for name, v := range views(balancer()) {
		var j, y bytes.Buffer
		if err := Write(&j, v, JSON); err != nil {
			t.Fatal(err)
		}
		if err := Write(&y, v, YAML); err != nil {
			t.Fatal(err)
		}
		var fromJSON, fromYAML any
		if err := yaml.Unmarshal(j.Bytes(), &fromJSON); err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(y.Bytes(), &fromYAML); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(fromJSON, fromYAML); d != "" {
			t.Errorf("%s: -json +yaml:\n%s", name, d)
		}
	}
}

func TestJSONComesBackWhole(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, balancer().Overview(), JSON); err != nil {
		t.Fatal(err)
	}
	var got Status
	dec := json.NewDecoder(&b)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(balancer(), got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
		cmpopts.EquateEmpty()); d != "" {
		t.Errorf("-sent +got:\n%s", d)
	}
}

func TestTablesHaveOneLineARow(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, balancer().BackendsView(), Table); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), "\n"); n != 4 { // the heading and three backends
		t.Errorf("%d lines, want 4:\n%s", n, &b)
	}
	for line := range strings.Lines(b.String()) {
		if strings.TrimRight(line, " \n")+"\n" != line {
			t.Errorf("blanks at the end of %q", line)
		}
	}
}

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 12 * time.Millisecond: "12ms", 59*time.Second + 900*time.Millisecond: "59s",
		3*time.Minute + 12*time.Second: "3m12s", 5*time.Hour + 7*time.Minute + 9*time.Second: "5h7m", 25 * time.Hour: "1d1h",
	} {
		if got := Age(ago(d), eleven); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
	if got := Age(time.Time{}, eleven); got != "" {
		t.Errorf("never: %q, want nothing", got)
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[uint64]string{0: "0", 1023: "1023", 1024: "1.0KiB", 1536 << 10: "1.5MiB", 1 << 62: "4.0EiB"} {
		if got := size(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestUnknownFormatIsRefused(t *testing.T) {
	if _, err := ParseFormat("xml"); err == nil || !strings.Contains(err.Error(), "table, wide, json or yaml") {
		t.Errorf("error %v does not name the formats", err)
	}
	if err := Write(&bytes.Buffer{}, Status{}.Overview(), "xml"); err == nil {
		t.Error("written all the same")
	}
}
