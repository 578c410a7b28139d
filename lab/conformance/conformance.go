// Package conformance is the test suite that every data plane must pass. Each story is a
// test case: it programs frontends, sends packets, and compares the result with the
// in-memory reference model. A data plane provides a Fixture and calls Run. It must
// reject what it does not support with dataplane.ErrUnsupported, and the suite then skips
// that story with the reason.
package conformance

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/fake"
)

// Fixture is a data plane with a way to send packets through it.
type Fixture interface {
	// DataPlane returns the currently open data plane.
	DataPlane() dataplane.DataPlane
	// Reopen closes the data plane and opens it again, as a restarted agent does.
	Reopen(t *testing.T)
	// Forward sends one packet of a flow through it, an IP packet of length bytes, and
	// returns where it went. opens marks a SYN or an INIT. Errors wrap fake.ErrNotOurs or
	// one of fake.Drops. Forward skips the test if it cannot make such a packet.
	Forward(t *testing.T, flow schedule.Flow, opens bool, length int) (fake.Decision, error)
}

// Finisher is a Fixture that can end TCP flows.
type Finisher interface {
	// Finish sends a FIN from the client, as Forward sends other packets.
	Finish(t *testing.T, flow schedule.Flow) (fake.Decision, error)
}

// Programmed contains the frontends programmed by a fixture. Querying the kernel for each
// packet would take longer than everything else.
type Programmed map[service.Key]desired.Frontend

// Find returns the frontend that matches a packet. A single port takes precedence over a
// port range, and a range over the whole address.
func (p Programmed) Find(k service.Key) (found desired.Frontend, ok bool) {
	for _, f := range p {
		has := f.VIP == k.VIP && (f.Whole() || f.Protocol == k.Protocol) && f.Port <= k.Port && k.Port <= max(f.Port, f.Last)
		if has && (!ok || found.Whole() || !f.Range()) {
			found, ok = f, true
		}
	}
	return found, ok
}

// OwnChoice is a fixture whose data plane selects backends by its own rules, as the
// kernel's IPVS does. A new flow may then go to any backend that accepts new flows.
// Everything else is still compared with the reference model: flow stickiness, draining,
// connection limits, client restrictions and counters. The stories check what each
// scheduler guarantees.
type OwnChoice interface {
	// OwnChoice is a marker method.
	OwnChoice()
}

// ErrNowhere is returned by Forward of a data plane that reports no drop reasons, if no
// backend received the packet. The reference model must then report a reason.
var ErrNowhere = errors.New("no backend received the packet")

// Run runs every story on one fixture, because opening a data plane takes long. No
// frontend is programmed when a story begins. It returns the outcome of each story.
func Run(t *testing.T, open func(t *testing.T) Fixture) (all Outcomes) {
	fixture := open(t)
	for _, story := range stories {
		t.Run(story.name, func(test *testing.T) {
			all = append(all, Outcome{Story: story.name})
			s := &runner{T: test, Fixture: fixture, model: fake.New(), suite: t, outcome: &all[len(all)-1]}
			defer s.empty()
			story.run(s)
			s.outcome.Run = s.outcome.Run || !s.outcome.inParts
		})
	}
	return all
}

var stories = []struct {
	name string
	run  func(*runner)
}{
	{"upsert and delete are idempotent", verbs},
	{"every forwarding mode, scheduler, address family and protocol", everyKind},
	{"flows are distributed by weight", shares},
	{"schedulers distribute flows as documented", promises},
	{"a draining backend keeps its flows and receives no new ones", draining},
	{"weight 0 drains with every scheduler", drainingBySchedule},
	{"a removed backend receives no packets", removal},
	{"all backends drain", allDrain},
	{"consecutive changes break no flow", chains},
	{"a new load balancer forwards existing flows", newcomer},
	{"hash-only uses only the Maglev table", noSurvival},
	{"round robin rotates and tracks flows", roundRobin},
	{"tracked flows stay on their backend", remembers},
	{"source hash and destination hash", hashes},
	{"connection limits of backends are enforced", maxConns},
	{"client affinity", affinity},
	{"port ranges and all ports of an address", ranges},
	{"allowed and denied clients", clients},
	{"allowed and denied clients of port ranges", clientsOfRanges},
	{"packets to other destinations are ignored", notOurs},
	{"a restart preserves the state", restart},
	{"all settings can be changed at runtime", changes},
	{"counters are exact", counters},
	{"random changes match the reference model", randomWalk},
}

// runner runs a story on a fixture and on the reference model in parallel.
type runner struct {
	*testing.T
	Fixture
	model *fake.DataPlane
	suite *testing.T // the test whose end closes the fixture
	// outcome belongs to the whole story, even in a part of it.
	outcome *Outcome
}

// part runs a part of a story, which can be skipped separately.
func (s *runner) part(name string, run func(*runner)) {
	s.outcome.inParts = true
	s.Run(name, func(t *testing.T) {
		run(&runner{T: t, Fixture: s.Fixture, model: s.model, suite: s.suite, outcome: s.outcome})
		s.outcome.Run = true
	})
}

// reopen reopens the fixture, also for the stories that follow.
func (s *runner) reopen() {
	s.Reopen(s.suite)
	s.model.Restart()
}

// empty deletes every frontend.
func (s *runner) empty() {
	programmed, err := s.DataPlane().List()
	for _, f := range programmed {
		err = errors.Join(err, s.DataPlane().Delete(f.Key))
	}
	if err != nil {
		s.Error(err)
	}
}

// upsert programs f in both. If the data plane does not support it, the story is skipped.
func (s *runner) upsert(f desired.Frontend) {
	s.Helper()
	err := s.DataPlane().Upsert(f)
	if errors.Is(err, dataplane.ErrUnsupported) {
		what, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), f.Key.String()+": "), ": ")
		s.outcome.addUnsupported(what)
		s.Skip(err)
	}
	if err == nil {
		canonical := s.canonical(f)
		canonical.RingSize = f.RingSize // the reference model always has a Maglev table
		err = s.model.Upsert(canonical)
	}
	if err != nil {
		s.Fatal(err)
	}
}

// canonical returns f in the form that the data plane stores.
func (s *runner) canonical(f desired.Frontend) desired.Frontend {
	if d, ok := s.DataPlane().(dataplane.Canonical); ok {
		return d.Canonical(f)
	}
	return f
}

// ownChoice reports whether the data plane may select other backends than the
// reference model.
func (s *runner) ownChoice() bool {
	_, ok := s.Fixture.(OwnChoice)
	return ok
}

func (s *runner) delete(k service.Key) {
	s.Helper()
	if err := errors.Join(s.DataPlane().Delete(k), s.model.Delete(k)); err != nil {
		s.Fatal(err)
	}
}

// sameList fails unless both list the same frontends.
func (s *runner) sameList() {
	s.Helper()
	got, err := s.DataPlane().List()
	if err != nil {
		s.Fatal(err)
	}
	slices.SortFunc(got, func(a, b desired.Frontend) int { return a.Key.Compare(b.Key) })
	want, _ := s.model.List()
	for i := range want {
		want[i] = s.canonical(want[i])
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, netip.Prefix{})); diff != "" {
		s.Fatalf("list differs from the reference model (-model +this):\n%s", diff)
	}
	if r, ok := s.DataPlane().(dataplane.Reader); ok {
		s.sameRead(r, got)
	}
}

// sameRead fails unless single frontends are read as they are listed.
func (s *runner) sameRead(r dataplane.Reader, list []desired.Frontend) {
	s.Helper()
	for _, want := range list {
		p, err := r.Read(want.Key)
		if err != nil || p == nil {
			s.Fatalf("read %s: %v, %v", want.Key, p, err)
		}
		if diff := cmp.Diff(want, p.Frontend, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, netip.Prefix{})); diff != "" {
			s.Fatalf("%s is read differently (-listed +read):\n%s", want.Key, diff)
		}
		owned := 0
		for _, n := range p.Owned {
			owned += n
		}
		if takes := slices.ContainsFunc(want.Backends, func(b service.Backend) bool { return b.Weight > 0 }); takes && owned != p.Slots {
			s.Fatalf("%s: backends own %d of %d slots: %v", want.Key, owned, p.Slots, p.Owned)
		}
	}
	if p, err := r.Read(service.Key{VIP: netip.MustParseAddr("198.51.100.200"), Port: 9, Protocol: service.TCP}); p != nil || err != nil {
		s.Fatalf("an absent frontend is read as %v, %v", p, err)
	}
}

// send sends a packet through both and fails unless they agree.
func (s *runner) send(flow schedule.Flow, opens bool) (fake.Decision, error) {
	s.Helper()
	got, err := s.Forward(s.T, flow, opens, packetLength)
	forward := s.model.Forward
	if s.ownChoice() {
		forward = func(flow schedule.Flow, opens bool, length int) (fake.Decision, error) {
			return s.model.Follow(flow, opens, length, got.Server)
		}
	}
	want, wantErr := forward(flow, opens, packetLength)
	if errors.Is(err, ErrNowhere) && wantErr != nil && !errors.Is(wantErr, fake.ErrNotOurs) {
		err = wantErr
	}
	if !same(got, want) || !sameReason(err, wantErr) {
		s.Fatalf("%v (opens %v): got %v, %v; want %v, %v", flow, opens, got, err, want, wantErr)
	}
	return got, err
}

func same(a, b fake.Decision) bool { return a.Server == b.Server && slices.Equal(a.Older, b.Older) }

// finds reports whether a packet reaches a backend, directly or through the chain of
// previous owners.
func finds(d fake.Decision, server netip.AddrPort) bool {
	return d.Server == server || slices.Contains(d.Older, server)
}

// must sends a packet that must reach a backend.
func (s *runner) must(flow schedule.Flow, opens bool) fake.Decision {
	s.Helper()
	d, err := s.send(flow, opens)
	if err != nil {
		s.Fatalf("%v: %v", flow, err)
	}
	return d
}

func sameReason(a, b error) bool {
	for _, reason := range fake.Drops {
		if errors.Is(a, reason) != errors.Is(b, reason) {
			return false
		}
	}
	return errors.Is(a, fake.ErrNotOurs) == errors.Is(b, fake.ErrNotOurs) && (a == nil) == (b == nil)
}

const packetLength = 120

// frontend returns the frontend that most stories use.
func frontend(method service.Method, scheduler service.Scheduler, backends int) desired.Frontend {
	return kind{method: method, scheduler: scheduler, protocol: service.TCP}.frontend(backends)
}

// kind is a short description of a frontend.
type kind struct {
	method        service.Method
	encapsulation service.Encapsulation
	scheduler     service.Scheduler
	protocol      service.Protocol
	vip6, server6 bool
	port          uint16 // 0: 80
}

func (k kind) String() string {
	family := map[bool]string{false: "IPv4", true: "IPv6"}
	return fmt.Sprint(k.method, " ", k.encapsulation, " ", k.scheduler, " ", k.protocol, " ", family[k.vip6], " to ", family[k.server6])
}

func (k kind) frontend(backends int) desired.Frontend {
	if k.port == 0 {
		k.port = 80
	}
	f := desired.Frontend{
		Key:    service.Key{VIP: netip.MustParseAddr("10.1.1.1"), Port: k.port, Protocol: k.protocol},
		Method: k.method, Encapsulation: k.encapsulation, Scheduler: k.scheduler, RingSize: 1021,
		Survival: (&service.Service{Method: k.method, Scheduler: k.scheduler}).DefaultSurvival(),
	}
	if k.method == service.Tunnel && k.encapsulation == "" {
		f.Encapsulation = service.DefaultEncapsulation
	}
	if k.vip6 {
		f.VIP = netip.MustParseAddr("2001:db8:1::1")
	}
	for i := range backends {
		b := server(i)
		addr, port := b.Addr.Addr(), b.Addr.Port()
		if k.server6 {
			addr = netip.AddrFrom16([16]byte{0xfd, 0x10, 15: byte(i + 1)})
		}
		if service.CheckPort(k.method, f.Key, port) != nil {
			port = f.Port
		}
		b.Addr = netip.AddrPortFrom(addr, port)
		f.Backends = append(f.Backends, b)
	}
	return f
}

func server(i int) service.Backend {
	return service.Backend{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 16, 1, byte(i + 1)}), 8080), Weight: 1}
}

// with returns f with changed backends.
func with(f desired.Frontend, change func([]service.Backend) []service.Backend) desired.Frontend {
	f.Backends = change(slices.Clone(f.Backends))
	return f
}

// drained returns f with the i-th backend draining.
func drained(f desired.Frontend, i int) desired.Frontend {
	return with(f, func(b []service.Backend) []service.Backend { b[i].Weight = 0; return b })
}

// joined returns f with one more backend, the i-th, which has the timestamp since.
func joined(f desired.Frontend, i int, since time.Time) desired.Frontend {
	return with(f, func(b []service.Backend) []service.Backend {
		s := server(i)
		s.Since = since
		return append(b, s)
	})
}

// flow returns the i-th flow to a frontend.
func flow(k service.Key, i int) schedule.Flow {
	client := netip.AddrFrom4([4]byte{192, 168, byte(i >> 14), byte(i>>6) | 1})
	if k.VIP.Is6() {
		client = netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 15: byte(i >> 8)})
	}
	return schedule.Flow{Client: netip.AddrPortFrom(client, uint16(1024+i)), Key: k}
}
