package ipvs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// web is the frontend with which most tests start.
func web(backends int) desired.Frontend {
	f := desired.Frontend{
		Key:    service.Key{VIP: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: service.TCP},
		Method: service.NAT, Scheduler: service.RoundRobin, RingSize: 251, Survival: service.FlowTable,
	}
	for i := range backends {
		f.Backends = append(f.Backends, service.Backend{Addr: netip.MustParseAddrPort(fmt.Sprintf("172.16.1.%d:8080", i+1)), Weight: 1})
	}
	return f
}

// pick returns one of several.
func pick[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

// anyFrontend returns a random frontend, often one that IPVS rejects.
func anyFrontend(rng *rand.Rand) desired.Frontend {
	f := desired.Frontend{
		Key: service.Key{
			VIP: pick(rng, netip.MustParseAddr("10.1.1.1"), netip.MustParseAddr("2001:db8::1")), Port: uint16(1 + rng.IntN(5)),
			Protocol: pick(rng, service.TCP, service.UDP, service.SCTP),
		},
		Method: pick(rng, service.Methods...), Scheduler: pick(rng, service.Schedulers...), RingSize: pick(rng, 251, 16381),
		Survival: pick(rng, service.SecondChance, service.FlowTable, service.HashOnly, ""),
		Affinity: pick(rng, 0, 0, time.Second, 3*time.Hour),
	}
	prefixes := func(texts string) (all []netip.Prefix) {
		for _, t := range strings.Fields(texts) {
			all = append(all, netip.MustParsePrefix(t))
		}
		return all
	}
	f.Allow = pick(rng, nil, nil, nil, nil, prefixes("192.168.0.0/24 fd02::/64 10.1.2.3/8"), prefixes("0.0.0.0/0 ::/0"))
	f.Deny = pick(rng, nil, nil, nil, nil, prefixes("192.168.0.128/25"), prefixes("fd02::9/128 ::/0 192.168.0.7/32"))
	switch rng.IntN(4) {
	case 0:
		f.Last = f.Port + 10
	case 1:
		f.Key = service.Key{VIP: f.VIP, Last: 65535}
	}
	if f.Method == service.Tunnel {
		f.Encapsulation = pick(rng, service.IPIP, service.GUE, "")
	}
	port := f.Port
	if f.Range() {
		port = 0
	}
	v6 := f.VIP.Is6() != (f.Method == service.Tunnel && rng.IntN(2) == 0)
	for i := range 1 + rng.IntN(4) {
		addr := netip.AddrFrom4([4]byte{172, 16, 0, byte(i + 1)})
		if v6 {
			addr = netip.AddrFrom16([16]byte{0xfd, 15: byte(i + 1)})
		}
		f.Backends = append(f.Backends, service.Backend{
			Addr: netip.AddrPortFrom(addr, port), Weight: pick[uint32](rng, 0, 1, 1, 7, 65535), MaxConns: pick[uint32](rng, 0, 0, 100),
			Name: "web", Node: "node1", Since: time.Unix(int64(i), 0),
		})
	}
	return f
}

func diff(want, got any) string {
	return cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, netip.Prefix{}))
}

// Converting to the kernel's form and back gives the canonical form.
func TestThereAndBack(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	served := 0
	for range 4000 {
		f := anyFrontend(rng)
		if err := (Config{}).check(f); err != nil {
			if !errors.Is(err, dataplane.ErrUnsupported) {
				t.Fatalf("%+v: %v", f, err)
			}
			continue
		}
		served++
		r := recordOf(f, 0xfa100001, 6080)
		if d := diff(canonical(f), frontendOf(r, f.Key)); d != "" {
			t.Fatalf("%+v (-want +got):\n%s", f, d)
		}
		if again := recordOf(frontendOf(r, f.Key), 0xfa100001, 6080); !slices.Equal(again.servers, r.servers) || again.virtual != r.virtual {
			t.Fatalf("%+v: written again as %+v, was %+v", f, again, r)
		}
		if c := canonical(f); !canonical(c).Same(c) {
			t.Fatalf("%+v: the canonical form has another one", f)
		}
	}
	if served < 800 {
		t.Errorf("only %d were served: the test proves little", served)
	}
}

// Fields that are not canonical make no difference to the kernel.
func TestCanonicalIsWhatIsKept(t *testing.T) {
	f := web(2)
	o := web(2)
	o.RingSize, o.Survival, o.Backends[0].Since, o.Backends[0].Drained = 16381, service.SecondChance, time.Unix(1, 0), time.Unix(2, 0)
	if !canonical(f).Same(canonical(o)) {
		t.Error("what IPVS does not keep makes a difference")
	}
	for name, change := range map[string]func(*desired.Frontend){
		"method":    func(f *desired.Frontend) { f.Method = service.FullNAT },
		"scheduler": func(f *desired.Frontend) { f.Scheduler = service.Maglev },
		"affinity":  func(f *desired.Frontend) { f.Affinity = time.Minute },
		"weight":    func(f *desired.Frontend) { f.Backends[0].Weight++ },
		"limit":     func(f *desired.Frontend) { f.Backends[0].MaxConns++ },
		"limits":    func(f *desired.Frontend) { f.Limits.Opens++ },
		"allow":     func(f *desired.Frontend) { f.Allow = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")} },
		"deny":      func(f *desired.Frontend) { f.Deny = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} },
	} {
		o := web(2)
		change(&o)
		if canonical(f).Same(canonical(o)) {
			t.Errorf("another %s makes no difference", name)
		}
	}
}

func TestRefusals(t *testing.T) {
	for want, change := range map[string]func(*desired.Frontend){
		"use tunnel":                        func(f *desired.Frontend) { f.Method = service.DSRNAT },
		`forwarding mode "x"`:               func(f *desired.Frontend) { f.Method = "x" },
		"scheduler p2c":                     func(f *desired.Frontend) { f.Scheduler = service.PowerOfTwo },
		`scheduler "x"`:                     func(f *desired.Frontend) { f.Scheduler = "x" },
		`encapsulation "x"`:                 func(f *desired.Frontend) { f.Encapsulation = "x" },
		"use whole seconds":                 func(f *desired.Frontend) { f.Affinity = time.Millisecond },
		"allow has no prefix":               func(f *desired.Frontend) { f.Allow = []netip.Prefix{netip.MustParsePrefix("2001:db8::/32")} },
		"limits":                            func(f *desired.Frontend) { f.Limits.ClientOpens = 1 },
		"port 0":                            func(f *desired.Frontend) { f.Port = 0 },
		"any protocol on some ports":        func(f *desired.Frontend) { f.Protocol = service.AnyProtocol },
		"protocol(1)":                       func(f *desired.Frontend) { f.Protocol = 1 },
		"last port is below the first":      func(f *desired.Frontend) { f.Last = 79 },
		"scheduler dh while 172.16.1.1:808": func(f *desired.Frontend) { f.Scheduler = service.DestinationHash; f.Backends[0].Weight = 0 },
		"scheduler dh with a connection l":  func(f *desired.Frontend) { f.Scheduler = service.DestinationHash; f.Backends[0].MaxConns = 1 },
		"port 8080 of backend 172.16.1.1":   func(f *desired.Frontend) { f.Last = 90 },
		"dr to port 8080":                   func(f *desired.Frontend) { f.Method = service.DR },
		"of another IP family than the VIP": func(f *desired.Frontend) { f.VIP = netip.MustParseAddr("2001:db8::1") },
	} {
		f := web(2)
		change(&f)
		if err := (Config{}).check(f); !errors.Is(err, dataplane.ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	f := web(0)
	if err := (Config{}).check(f); err == nil || errors.Is(err, dataplane.ErrUnsupported) {
		t.Errorf("no backends: %v", err)
	}
	f = web(1)
	f.Method, f.VIP = service.Tunnel, netip.MustParseAddr("2001:db8::1")
	if err := (Config{}).check(f); err != nil {
		t.Errorf("a tunnel to another family: %v", err)
	}
	if err := (Config{Sync: Sync{Interface: "eth0"}}).check(f); !errors.Is(err, dataplane.ErrUnsupported) {
		t.Errorf("a tunnel to another family, synchronised: %v", err)
	}
}

// interpret does the kernel's part in changes: it applies messages to a record.
func interpret(t *testing.T, have *record, list []message) *record {
	t.Helper()
	for _, m := range list {
		reply := []byte(m[16:])
		v, _, err := readService(reply)
		must(t, err)
		var s server
		if m[16] >= cmdNewDest {
			s, _, err = readServer(reply, v.serviceID)
			must(t, err)
		}
		i := -1
		if have != nil {
			i = slices.IndexFunc(have.servers, func(o server) bool { return o.addr == s.addr })
		}
		switch command := m[16]; {
		case command == cmdNewService && have == nil:
			have = &record{virtual: v}
		case command == cmdSetService && have != nil:
			have.virtual = v
		case command == cmdNewDest && i < 0:
			have.servers = append(have.servers, s)
		case command == cmdSetDest && i >= 0:
			have.servers[i] = s
		case command == cmdDelDest && i >= 0:
			have.servers = slices.Delete(have.servers, i, i+1)
		default:
			t.Fatalf("command %d with %+v", command, have)
		}
	}
	slices.SortFunc(have.servers, compareServers)
	return have
}

// Changes work from any state to any other one, without duplicates, and a frontend with
// backends never loses all of them in between.
func TestChanges(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var have *record
	f := anyFrontend(rng)
	for range 2000 {
		next := anyFrontend(rng)
		next.Key, next.Method, next.Encapsulation = f.Key, f.Method, f.Encapsulation
		if (Config{}).check(next) != nil {
			f, have = anyFrontend(rng), nil
			continue
		}
		want := recordOf(next, 0xfa100001, 6080)
		list := changes(have, want)
		have = interpret(t, have, list)
		if have.virtual != want.virtual || !slices.Equal(have.servers, want.servers) {
			t.Fatalf("got %+v\nwant %+v", have, want)
		}
		if again := changes(have, want); len(again) > 0 {
			t.Fatalf("%d messages change nothing", len(again))
		}
	}
}

func TestOrderOfChanges(t *testing.T) {
	have := recordOf(web(3), 0, 0)
	f := web(5)
	f.Scheduler = service.LeastConn
	f.Backends = f.Backends[1:]
	f.Backends[0].Weight = 0
	var commands []byte
	for _, m := range changes(&have, recordOf(f, 0, 0)) {
		commands = append(commands, m[16])
	}
	if want := []byte{cmdNewDest, cmdNewDest, cmdSetService, cmdSetDest, cmdDelDest}; !slices.Equal(commands, want) {
		t.Errorf("commands %v, want %v", commands, want)
	}
}
